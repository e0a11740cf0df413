//===- CommandLine.h - What megalith bench takes -----------------*- C++ -*-===//
#ifndef MEGALITH_TOOLS_BENCH_COMMANDLINE_H
#define MEGALITH_TOOLS_BENCH_COMMANDLINE_H

#include "tools/bench/Bench.h"
#include "tools/megalith/Arguments.h"
#include "tools/megalith/Failure.h"

namespace megalith::bench {

/// Of megalith bench, and of megalith-bench, which takes artifacts only.
extern const cli::Syntax kSyntax, kFolderSyntax;

/// What the options ask for; the folders are left open.
struct Request {
  std::vector<int64_t> rows;
  std::vector<runtime::LaunchMode> modes; ///< a plan for each, of each rows bucket
  int64_t ranks = 1;                      ///< of the plans
  BenchOptions options;
  std::string json;            ///< file, "" for none
  std::string trace, perfetto; ///< files, "" for none
};
llvm::Expected<Request> readRequest(const cli::Arguments &arguments);

/// Times the artifacts in `folder`, <target> of megalith compile's output (or <target>/rows<n>),
/// prints the table and writes the JSON file.
llvm::Error run(Request request, llvm::StringRef folder);

} // namespace megalith::bench

#endif // MEGALITH_TOOLS_BENCH_COMMANDLINE_H
