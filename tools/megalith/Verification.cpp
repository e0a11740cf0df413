//===- Verification.cpp - kernels from text, to be proved -------------------===//

#include "tools/megalith/Verification.h"

#include "ir/task/Task.h"
#include "tools/megalith/Failure.h"

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/AsmParser/AsmParserState.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"

using namespace llvm;

namespace megalith::cli {

/// The module, its ops where they stand in the text. What is wrong with one is told there, too.
static mlir::OwningOpRef<mlir::ModuleOp> parseInPlace(mlir::MLIRContext &context,
                                                      const SourceMgr &sources) {
  mlir::Block block;
  mlir::AsmParserState seen;
  const mlir::ParserConfig config(&context, /*verifyAfterParse=*/false);
  if (mlir::failed(mlir::parseAsmSourceFile(sources, &block, config, &seen)))
    return {};
  StringRef file = sources.getMemoryBuffer(sources.getMainFileID())->getBufferIdentifier();
  for (const auto &op : seen.getOpDefs()) {
    const auto [line, column] = sources.getLineAndColumn(op.loc.Start);
    op.op->setLoc(mlir::FileLineColLoc::get(&context, file, line, column));
  }
  auto module = mlir::detail::constructContainerOpForParserIfNecessary<mlir::ModuleOp>(
      &block, &context, mlir::FileLineColLoc::get(&context, file, 1, 1));
  if (!module || mlir::failed(mlir::verify(*module)))
    return {};
  return module;
}

Expected<mlir::OwningOpRef<mlir::ModuleOp>> parseKernels(mlir::MLIRContext &context, StringRef text,
                                                         StringRef file, SourceMgr *sources,
                                                         Places places) {
  SourceMgr own;
  SourceMgr &used = sources ? *sources : own;
  used.AddNewSourceBuffer(MemoryBuffer::getMemBufferCopy(text, file), SMLoc());
  auto module = places == Places::Text ? parseInPlace(context, used)
                                       : mlir::parseSourceFile<mlir::ModuleOp>(used, &context);
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
