//===- Export.h - Traces as files --------------------------------*- C++ -*-===//
#ifndef MEGALITH_TOOLS_TRACE_EXPORT_H
#define MEGALITH_TOOLS_TRACE_EXPORT_H

#include "runtime/plan.h"
#include "runtime/trace.h"
#include "tools/trace/Summary.h"

#include <cstdint>
#include <string>

namespace megalith::trace {

/// Version of what toJson writes: docs/trace-json.md.
inline constexpr int64_t kTraceJsonVersion = 2;

/// Where a timeline comes from.
enum class Source { Measured, Predicted };

/// Summary, critical path and records, in nanoseconds. Records are of at most `launches` launches,
/// the middle ones.
std::string toJson(const runtime::Plan &plan, const runtime::Trace &trace, const Summary &summary,
                   Source source = Source::Measured, int64_t launches = 3);

/// For ui.perfetto.dev and chrome://tracing: a process an SM, a thread a warp, a bar a stage, in it
/// one for its wait.
std::string toPerfetto(const runtime::Plan &plan, const runtime::Trace &trace,
                       int64_t launches = 3);

} // namespace megalith::trace

#endif // MEGALITH_TOOLS_TRACE_EXPORT_H
