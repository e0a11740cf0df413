//===- Declarations.h - A kernel's declarations in C++ -----------*- C++ -*-===//
#ifndef MEGALITH_CODEGEN_DECLARATIONS_H
#define MEGALITH_CODEGEN_DECLARATIONS_H

#include "codegen/Writer.h"
#include "ir/task/Task.h"

namespace megalith {

/// Config, then an alias or struct for each buffer, weight, exchange, edge, ring and stage, with
/// what recording needs of them in a kernel that does. Fails where a place in memory is missing.
mlir::LogicalResult emitDeclarations(task::KernelOp kernel, Writer &out);

/// The edges whose mbarriers a kernel sets up: all but those of words.
llvm::SmallVector<task::EdgeOp> mbarrierEdges(task::KernelOp kernel);

/// Whether `edge` is the full or the free edge of a ring.
bool isStream(task::KernelOp kernel, llvm::StringRef edge);

/// What a stage was compiled from: its `source` and location, as far as they are known.
std::string describe(task::StageOp stage);

} // namespace megalith

#endif // MEGALITH_CODEGEN_DECLARATIONS_H
