//===- megalith-opt.cpp - run single passes over .mlir files ----------------===//

#include "tools/megalith-opt/Registration.h"

#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  megalith::registerDialects(registry);
  megalith::registerPasses();
  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, argv, "Megalith: apply passes to moe and task IR\n", registry));
}
