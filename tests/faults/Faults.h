//===- Faults.h - Kernels with a fault planted -------------------*- C++ -*-===//
//
// What a kernel must never do, planted into the source of a good one: each must end, within the
// waits' deadline, in a message that names an edge where it is stuck.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_TESTS_FAULTS_FAULTS_H
#define MEGALITH_TESTS_FAULTS_FAULTS_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

#include <map>
#include <string>
#include <vector>

namespace megalith::test {

struct Fault {
  const char *name;
  const char *what; ///< is wrong, for people
  /// Whose signal is missing: the message names it, whoever gives up first.
  const char *edge;
  struct Edit {
    const char *file; ///< "" : the kernel's source; else a device header's include name
    const char *from, *to;
  };
  std::vector<Edit> edits;
  bool onHost = true;
  int tp = 1; ///< ranks of its plan, virtual ones
};

/// All of them, in kernels of qwen3-moe-small.test.json with two rows on eight SMs.
llvm::ArrayRef<Fault> faults();

/// A kernel's source and the device headers, with a fault.
struct Planted {
  std::string source;
  std::map<std::string, std::string> headers;
};

/// Edits `source`; the error names an edit that finds nothing to change.
llvm::Expected<Planted> plant(const Fault &fault, llvm::StringRef source);

/// The edge that a message about a missed deadline names; "" if it is none.
llvm::StringRef namedEdge(llvm::StringRef said);

} // namespace megalith::test

#endif // MEGALITH_TESTS_FAULTS_FAULTS_H
