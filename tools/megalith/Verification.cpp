//===- Verification.cpp - kernels from text, to be proved -------------------===//

#include "tools/megalith/Verification.h"

#include "ir/task/Task.h"
#include "tools/megalith/Failure.h"

#include "mlir/Parser/Parser.h"

using namespace llvm;

namespace megalith::cli {

Expected<mlir::OwningOpRef<mlir::ModuleOp>> parseKernels(mlir::MLIRContext &context, StringRef text,
                                                         StringRef file, SourceMgr *sources) {
  SourceMgr own;
  SourceMgr &used = sources ? *sources : own;
  used.AddNewSourceBuffer(MemoryBuffer::getMemBufferCopy(text, file), SMLoc());
  auto module = mlir::parseSourceFile<mlir::ModuleOp>(used, &context);
  if (!module)
    return failure(Exit::Input, "{0}: expected valid moe or task IR but got the errors above",
                   file);
  int64_t kernels = 0;
  for (task::KernelOp kernel : module->getOps<task::KernelOp>()) {
    ++kernels;
    if (!kernel.isAtRoleLevel())
      return failure(Exit::Input,
                     "{0}: expected kernels with role regions but @{1} has none; give the IR after "
                     "task-lower-to-roles",
                     file, kernel.getSymName());
  }
  if (kernels == 0)
    return failure(Exit::Input,
                   "{0}: expected at least one task.kernel but got none; give the IR after "
                   "task-lower-to-roles",
                   file);
  return module;
}

} // namespace megalith::cli
