//===- Kernel.h - Parsed kernels for emitter tests ---------------*- C++ -*-===//
#ifndef MEGALITH_TESTS_CODEGEN_EMIT_KERNEL_H
#define MEGALITH_TESTS_CODEGEN_EMIT_KERNEL_H

#include "codegen/Emitter.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"

#include <catch2/catch.hpp>
#include <string>

namespace megalith::test {

/// A module of task kernels, to be changed and emitted.
class Kernels {
public:
  explicit Kernels(const std::string &path = "tests/ir/task/m0.mlir") {
    context.loadDialect<task::TaskDialect>();
    module = mlir::parseSourceFile<mlir::ModuleOp>(path, &context);
    REQUIRE(module);
  }

  task::KernelOp first() { return *module->getOps<task::KernelOp>().begin(); }

  /// The n-th op of that type in the first kernel.
  template <class OpT> OpT nth(int n) {
    OpT found;
    first().walk([&](OpT op) {
      if (n-- == 0)
        found = op;
    });
    REQUIRE(found);
    return found;
  }

  /// The source without digests, or "error: " and the first message.
  std::string emit() {
    std::string error;
    mlir::ScopedDiagnosticHandler handler(&context, [&](mlir::Diagnostic &diagnostic) {
      if (error.empty() && diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error)
        error = diagnostic.str();
      return mlir::success();
    });
    EmitOptions options;
    options.digests = false;
    mlir::FailureOr<std::string> source = emitKernel(first(), options);
    return mlir::succeeded(source) ? *source : "error: " + error;
  }

  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

} // namespace megalith::test

#endif // MEGALITH_TESTS_CODEGEN_EMIT_KERNEL_H
