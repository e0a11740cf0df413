// The task dialect: kernels as stages, plans and role regions. TaskDialect.td holds the map.
#pragma once

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"

#include "ir/task/TaskDialect.h.inc"
#include "ir/task/TaskEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "ir/task/TaskAttrs.h.inc"

namespace megalith {
/// Attributes of a module of kernels: the kernel of each launch of a step, in order, and the layer
/// of each, where that is not one more at every launch of a layer.
inline constexpr llvm::StringLiteral kLaunchesAttr = "megalith.launches";
inline constexpr llvm::StringLiteral kLaunchLayersAttr = "megalith.launch_layers";
/// `kind` of a kernel of one stage.
inline constexpr llvm::StringLiteral kStageKernelKind = "stage";
} // namespace megalith

namespace megalith::task {
class EdgeOp;
class RoleOp;

/// Warps of a role; the CTA's warps are numbered role after role.
inline int64_t warpsOf(Role role) {
  return role == Role::Consumer ? 8 : 1;
}

/// Parses affine expressions over d0, d1, … into one map with as few dimensions as they use.
mlir::ParseResult parseExprs(mlir::AsmParser &parser, mlir::AsmParser::Delimiter delimiter,
                             mlir::AffineMapAttr &map);
/// The map of `exprs` with as few dimensions as they use: the canonical form of access and trip
/// maps.
mlir::AffineMapAttr affineMapAttr(llvm::ArrayRef<mlir::AffineExpr> exprs,
                                  mlir::MLIRContext *context);

/// Minimum of the map's results at `dims` (extra dims of the map read 0), never negative: trip
/// counts and widths.
int64_t evalMin(mlir::AffineMap map, llvm::ArrayRef<int64_t> dims);
/// All results of the map at `dims`.
llvm::SmallVector<int64_t> evalAll(mlir::AffineMap map, llvm::ArrayRef<int64_t> dims);
} // namespace megalith::task

#define GET_OP_CLASSES
#include "ir/task/TaskOps.h.inc"
