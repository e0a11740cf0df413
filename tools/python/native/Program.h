//===- Program.h - what the Python module binds ------------------*- C++ -*-===//
//
// The steps of the command line on objects. Nothing here knows Python: errors are llvm::Errors with
// the command line's messages and exit codes, and MLIR's diagnostics are collected, not printed.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_TOOLS_PYTHON_NATIVE_PROGRAM_H
#define MEGALITH_TOOLS_PYTHON_NATIVE_PROGRAM_H

#include "tools/check/Session.h"
#include "tools/megalith/Compilation.h"

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace megalith::python {

using Texts = std::vector<std::pair<std::string, std::string>>; ///< (name, text), in order
using Messages = std::vector<std::string>; ///< "place: error: text", a note a line below

struct RunRequest {
  std::string backend = "host";
  check::Workload workload;
  check::SessionOptions options;
  std::string fault; ///< name of options.fault, or empty
  uint64_t scheduleSeed = 1;
};

struct RunResult {
  check::Report report;
  std::vector<check::LaunchValues> values; ///< of each launch of the report
  std::vector<reference::Step> steps;      ///< what each step worked on
};

/// A config compiled. Every member may be called from any thread; one call works at a time.
class Program {
public:
  /// Imports and runs the passes; proves nothing and writes nothing.
  static llvm::Expected<std::unique_ptr<Program>> create(cli::CompileRequest request,
                                                         cli::Progress progress);

  /// Proves the kernels, with `cases` random cases beside the largest. On failure `messages` holds
  /// every reason.
  llvm::Error verify(int cases, Messages &messages);

  /// The graph as "import", then the IR after each pass.
  Texts ir() const;
  /// Kernel -> source. `digests`: of the IR and of the device headers, in the banner.
  llvm::Expected<Texts> sources(bool digests) const;
  /// The text of plan.json, without cubins.
  llvm::Expected<std::string> plan() const;
  /// Writes the artifact; returns its folder.
  llvm::Expected<std::string> save(llvm::StringRef folder, bool cubins, bool ir);
  /// Runs a workload launch by launch and compares it with the reference.
  llvm::Expected<RunResult> run(RunRequest request);

private:
  std::unique_ptr<cli::Compilation> compilation;
  mutable std::mutex mutex;
};

/// Proves the kernels of a module's text, as `megalith verify`; returns how many there are. `name`
/// is the text's, for messages.
llvm::Expected<int64_t> verifyText(llvm::StringRef text, llvm::StringRef name, int cases,
                                   Messages &messages);

/// The sources of the kernels of a module's text.
llvm::Expected<Texts> emitText(llvm::StringRef text, llvm::StringRef name, bool digests,
                               Messages &messages);

} // namespace megalith::python

#endif // MEGALITH_TOOLS_PYTHON_NATIVE_PROGRAM_H
