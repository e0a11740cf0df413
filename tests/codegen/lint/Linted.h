// Kernels as NVRTC makes them, for tests that edit their PTX as a careless change of the device
// headers, or another compiler, would.
#pragma once

#include "codegen/lint/Lint.h"
#include "passes/Pipelines.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <string>
#include <vector>

namespace megalith::lint {

/// The kernel of a file or plan and its PTX; `hasPtx` is false where there is no NVRTC.
class Linted {
public:
  /// Of a file at role level.
  Linted(const char *file, llvm::StringRef name);
  /// Of a config's plan, with NVFP4 experts.
  Linted(const char *config, int64_t rows, int64_t sms, llvm::StringRef name);

  std::vector<Finding> findings(const std::vector<std::string> &edited) const;
  std::vector<std::string> text() const;

  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  task::KernelOp kernel;
  std::string ptx;
  llvm::SmallVector<llvm::StringRef> lines;
  bool hasPtx = false;

private:
  void compile(llvm::StringRef name);
};

std::string all(const std::vector<Finding> &findings);

/// The lines from a mark to its end, both included, where NVRTC lays them out in a row.
struct Marked {
  std::string verb, edge;
  size_t begin, end;
};
std::vector<Marked> regionsOf(llvm::ArrayRef<llvm::StringRef> lines);

/// The opcode on a line, "" if there is none.
llvm::StringRef opcodeOn(llvm::StringRef line);

std::string replaced(llvm::StringRef line, llvm::StringRef from, llvm::StringRef to);

/// The text without the instructions of a region that synchronise, and without its calls of
/// functions that may have some.
std::vector<std::string> withoutInstructions(std::vector<std::string> text, const Marked &region);

} // namespace megalith::lint
