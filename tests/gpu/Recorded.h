//===- Recorded.h - What launches left on a GPU, compared -------*- C++ -*-===//
//
// `check record` writes it where the GPU is; `check compare` holds it against the reference
// anywhere.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_TESTS_GPU_RECORDED_H
#define MEGALITH_TESTS_GPU_RECORDED_H

#include "runtime/plan.h"

#include "llvm/Support/Error.h"

#include <string>
#include <vector>

namespace megalith::test {

/// In folder `out`: what the launches of a step behind `context` positions left.
std::string valuesFile(const std::string &out, const runtime::Plan &plan, int64_t context);

/// Compares the files of these contexts with the reference, a table each; the error says which are
/// not within tolerance. `folder`: the artifact's. `launches`: which groups of launches are
/// compared, each alone; none: all, and the whole step.
llvm::Error compareRecorded(const std::string &folder, const std::string &out,
                            const std::vector<int64_t> &contexts,
                            const std::vector<int64_t> &launches);

} // namespace megalith::test

#endif // MEGALITH_TESTS_GPU_RECORDED_H
