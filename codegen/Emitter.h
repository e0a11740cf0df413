//===- Emitter.h - From a kernel's role regions to CUDA C++ ------*- C++ -*-===//
//
// The emitter is a printer: it decides nothing and changes nothing. Every number and call in its
// output stands in the IR, in the order of the IR. codegen/README.md says what is printed for what.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_CODEGEN_EMITTER_H
#define MEGALITH_CODEGEN_EMITTER_H

#include "ir/task/Task.h"

#include <string>

namespace megalith {

/// What the banner says about a source's origin. Empty lines are left out.
struct EmitOptions {
  std::string origin;     ///< what was compiled: "configs/qwen3-30b-a3b.json"
  std::string pipeline;   ///< the passes, as for --pass-pipeline
  std::string regenerate; ///< the command that writes this file again
  bool digests = true;    ///< of the IR and of the device headers
};

/// The source of `kernel`, a self-contained file but for the device headers. Equal IR, headers and
/// options give equal text, clang-format clean. Fails, with an error on the op, on a kernel that
/// is not at role level, has no memory plan, or whose names C++ or a device header has taken.
mlir::FailureOr<std::string> emitKernel(task::KernelOp kernel, const EmitOptions &options = {});

/// 16 hex digits that change with the kernel's IR, whatever its locations.
std::string kernelDigest(task::KernelOp kernel);

} // namespace megalith

#endif // MEGALITH_CODEGEN_EMITTER_H
