//===- HostLog.h - A host run's log, read -------------------------*- C++ -*-===//
//
// The text of runtime/host/log.h as launches, warps and steps.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_CODEGEN_LINT_HOSTLOG_H
#define MEGALITH_CODEGEN_LINT_HOSTLOG_H

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <map>
#include <vector>

namespace megalith::lint {

/// A line that is set in, split at its blanks; numbers at their places.
struct LogLine {
  int number;
  llvm::SmallVector<llvm::StringRef, 8> words;
  int64_t at(size_t word) const {
    int64_t value = -1;
    if (word < words.size())
      words[word].getAsInteger(10, value);
    return value;
  }
};

/// A step of a warp: a mark, launch_wait, launch_dependents, or what lies between.
struct LoggedStep {
  int number = 0;
  llvm::StringRef text;
  std::vector<LogLine> lines;
};

/// A launch of the log: by (CTA, warp) its steps.
struct LoggedLaunch {
  int number;
  llvm::StringRef kernel;
  uint64_t n = 0;             ///< the launch's number, or the first's of a looping kernel
  int64_t first = 0, end = 1; ///< which launches of its step that runs
  std::map<std::pair<int, int>, std::vector<LoggedStep>> warps;
};

/// Fails with the line that cannot be read. What it returns points into the text.
llvm::Expected<std::vector<LoggedLaunch>> readHostLog(llvm::StringRef log);

} // namespace megalith::lint

#endif // MEGALITH_CODEGEN_LINT_HOSTLOG_H
