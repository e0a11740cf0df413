//===- MoeFold.cpp - folds and canonical forms ------------------------------===//
//
// Only what leaves every bit of the result alone. A norm, for one, never folds: even with a unit
// gain it changes its input.
//
//===----------------------------------------------------------------------===//

#include "ir/moe/Moe.h"

#include "mlir/IR/PatternMatch.h"

using namespace mlir;

namespace megalith::moe {

/// No channel rotates: the identity, unless it also rounds to another element type.
LogicalResult RopeOp::fold(FoldAdaptor, SmallVectorImpl<OpFoldResult> &results) {
  if (getRotaryDims() != 0 || getQ().getType() != getQOut().getType() ||
      getK().getType() != getKOut().getType())
    return failure();
  results.assign({OpFoldResult(getQ()), OpFoldResult(getK())});
  return success();
}

/// To the type it has, a value is itself.
OpFoldResult CastOp::fold(FoldAdaptor) {
  return getInput().getType() == getResult().getType() ? getInput() : Value();
}

/// Of one rank, the gathered rows are the rows.
OpFoldResult AllGatherOp::fold(FoldAdaptor) {
  return getRanks() == 1 && getInput().getType() == getResult().getType() ? getInput() : Value();
}

/// Of one rank, the sum is its only term.
OpFoldResult AllReduceOp::fold(FoldAdaptor) {
  return getRanks() == 1 && getInput().getType() == getResult().getType() ? getInput() : Value();
}

/// A branch scaled by one is a plain branch.
LogicalResult ResidualOp::canonicalize(ResidualOp op, PatternRewriter &rewriter) {
  if (op.getKind() != ResidualKind::Scaled || *op.getScale() != 1.0)
    return failure();
  rewriter.modifyOpInPlace(op, [&] {
    op.setKind(ResidualKind::Plain);
    op.removeScaleAttr();
  });
  return success();
}

/// A window or chunk that covers the longest possible sequence hides nothing.
LogicalResult AttentionOp::canonicalize(AttentionOp op, PatternRewriter &rewriter) {
  KVType kv = op.getKv().getType();
  // With a ring for a cache the extent still says what may be forgotten.
  if (op.getMask() == AttentionMask::Full || kv.getWindow() > 0 ||
      *op.getExtent() < kv.getPositions())
    return failure();
  rewriter.modifyOpInPlace(op, [&] {
    op.setMask(AttentionMask::Full);
    op.removeExtentAttr();
  });
  return success();
}

} // namespace megalith::moe
