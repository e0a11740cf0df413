//===- Registration.cpp - what megalith-opt knows ---------------------------===//

#include "tools/megalith-opt/Registration.h"

#include "ir/moe/Moe.h"
#include "ir/task/Task.h"
#include "passes/Passes.h"
#include "passes/Pipelines.h"
#include "passes/graph/GraphPasses.h"
#include "passes/simulate/SimulatePasses.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Transforms/Passes.h"

namespace megalith {

void registerDialects(mlir::DialectRegistry &registry) {
  registry.insert<mlir::func::FuncDialect, mlir::arith::ArithDialect>();
  registry.insert<moe::MoeDialect, task::TaskDialect>();
}

void registerPasses() {
  mlir::registerCanonicalizerPass();
  mlir::registerCSEPass();
  registerMegalithGraphPasses();
  registerMegalithSimulatePasses();
  registerMegalithPasses();
  registerPipelines();
}

} // namespace megalith
