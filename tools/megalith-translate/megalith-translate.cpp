//===- megalith-translate.cpp - print task kernels as CUDA C++ --------------===//

#include "codegen/Emitter.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Tools/mlir-translate/MlirTranslateMain.h"
#include "mlir/Tools/mlir-translate/Translation.h"
#include "llvm/Support/CommandLine.h"

int main(int argc, char **argv) {
  // Digests change with every device header, so expected outputs leave them out.
  static llvm::cl::opt<bool> noDigests("no-digests",
                                       llvm::cl::desc("leave the digests out of the banner"));
  mlir::TranslateFromMLIRRegistration emit(
      "emit-kernels", "the CUDA C++ of every task.kernel of the module, one after another",
      [](mlir::Operation *op, llvm::raw_ostream &os) -> mlir::LogicalResult {
        megalith::EmitOptions options;
        options.digests = !noDigests;
        mlir::WalkResult result = op->walk([&](megalith::task::KernelOp kernel) {
          mlir::FailureOr<std::string> source = megalith::emitKernel(kernel, options);
          if (mlir::failed(source))
            return mlir::WalkResult::interrupt();
          os << *source;
          return mlir::WalkResult::skip();
        });
        return mlir::failure(result.wasInterrupted());
      },
      [](mlir::DialectRegistry &registry) { registry.insert<megalith::task::TaskDialect>(); });
  return mlir::failed(mlir::mlirTranslateMain(argc, argv, "Megalith: print kernels\n"));
}
