//===- Moe.h - the moe dialect: what a decode step computes ----------------===//
//
// Types, attributes and operations of the dialect; MoeBase.td holds its map and its rules.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_IR_MOE_MOE_H
#define MEGALITH_IR_MOE_MOE_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include <string>

#include "ir/moe/MoeDialect.h.inc"
#include "ir/moe/MoeEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "ir/moe/MoeAttrs.h.inc"

#define GET_TYPEDEF_CLASSES
#include "ir/moe/MoeTypes.h.inc"

#define GET_OP_CLASSES
#include "ir/moe/MoeOps.h.inc"

namespace megalith::moe {

/// The weight that `ref` names in the symbol table around `from`; null if `ref` is null, or names
/// nothing or something else (which verified IR does not).
WeightOp lookupWeight(mlir::Operation *from, mlir::FlatSymbolRefAttr ref);

/// On a module whose functions are those of one of several ranks (`moe-shard`): how many, i64.
inline constexpr llvm::StringLiteral kRanksAttr = "megalith.ranks";

} // namespace megalith::moe

#endif // MEGALITH_IR_MOE_MOE_H
