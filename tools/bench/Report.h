//===- Report.h - What a benchmark found, as text and JSON -------*- C++ -*-===//
#ifndef MEGALITH_TOOLS_BENCH_REPORT_H
#define MEGALITH_TOOLS_BENCH_REPORT_H

#include "runtime/plan.h"
#include "tools/bench/Bench.h"

#include <string>

namespace megalith::bench {

// Lines of progress.
std::string ceilingLine(double bytesPerSecond);
std::string setUpLine(const runtime::Plan &plan, double seconds, int64_t weightBytes);
std::string cellLine(const BenchResult &result, const Cell &cell);

/// Why the run's figures do not count; "" if they do.
std::string voidReason(const BenchResult &result);

/// Steps and kernels in two tables, with what the columns mean.
std::string table(const BenchResult &result);

/// All of it. Times are in microseconds, rates in bytes per second. `error`: what ended the run
/// early, "" if nothing did.
std::string toJson(const BenchResult &result, llvm::StringRef error);

} // namespace megalith::bench

#endif // MEGALITH_TOOLS_BENCH_REPORT_H
