//===- Verify.cpp - megalith verify -----------------------------------------===//

#include "passes/verify/Verify.h"
#include "tools/megalith-opt/Registration.h"
#include "tools/megalith/Commands.h"
#include "tools/megalith/Files.h"

#include "mlir/Parser/Parser.h"
#include "llvm/Support/SourceMgr.h"

using namespace llvm;

namespace megalith::cli {

static Error runVerify(const Arguments &arguments) {
  Expected<int64_t> cases = arguments.integer("cases", 0, 10000, 8);
  if (!cases)
    return cases.takeError();
  StringRef file = arguments.positional();
  Expected<std::string> text = readText(file, "a .mlir file with kernels of the task dialect");
  if (!text)
    return text.takeError();

  mlir::DialectRegistry registry;
  registerDialects(registry);
  mlir::MLIRContext context(registry);
  SourceMgr sources;
  sources.AddNewSourceBuffer(MemoryBuffer::getMemBuffer(*text, file), SMLoc());
  // Diagnostics keep their notes: they name both sides of a missing edge.
  mlir::SourceMgrDiagnosticHandler handler(sources, &context);
  auto module = mlir::parseSourceFile<mlir::ModuleOp>(sources, &context);
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
  if (mlir::failed(verify::verifyPlan(*module, int(*cases))))
    return failure(Exit::Proof, "{0}: not proved, for the reasons above", file);
  return writeText("", formatv("{0}: proved: {1} kernel{2} without deadlock or race\n", file,
                               kernels, kernels == 1 ? "" : "s")
                           .str());
}

static constexpr Option kOptions[] = {
    {"cases", "<n>", "random cases beside the largest one, per kernel (8)"},
};

const Command kVerify = {
    {"verify", "prove that kernels neither deadlock nor race", "<file.mlir>",
     "kernels of the task dialect with role regions", kOptions,
     "megalith verify tests/ir/task/m0.mlir"},
    runVerify,
};

} // namespace megalith::cli
