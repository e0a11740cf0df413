//===- op_rules.h - Attributes of moe operations as rules --------*- C++ -*-===//
//
// What the evaluator cannot compute is refused here, by name.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_MODELS_REFERENCE_OP_RULES_H
#define MEGALITH_MODELS_REFERENCE_OP_RULES_H

#include "ir/moe/Moe.h"
#include "models/reference/context.h"
#include "models/reference/rules.h"
#include "models/weights/nvfp4.h"

#include "llvm/Support/Error.h"

namespace megalith::reference {

/// "moe.rope at model.mlir:4:7: `text`".
llvm::Error opError(mlir::Operation *op, const llvm::Twine &text);

/// bf16 or f32 of a tensor, a weight's format or a cache's element type.
llvm::Expected<Element> elementOf(mlir::Operation *op, mlir::Type type);

/// A block format of the dialect as the weights have it.
models::BlockFormat formatOf(moe::BlockFormatType type);

/// Channels of a row.
inline int64_t widthOf(mlir::Value value) {
  return llvm::cast<mlir::RankedTensorType>(value.getType()).getDimSize(1);
}

/// `rowWidth`: channels of a row, which share one statistic unless the operation is over heads.
NormRule ruleOf(moe::NormOp op, int64_t rowWidth);
NormRule ruleOf(moe::QkNormOp op, int64_t rowWidth);
NormRule ruleOf(moe::ExpertNormOp op, int64_t rowWidth);
NormRule ruleOf(moe::SquareSumsOp op);
llvm::Expected<RopeRule> ruleOf(moe::RopeOp op);
AttentionRule ruleOf(moe::AttentionOp op);
llvm::Expected<TopKRule> ruleOf(moe::TopKOp op);
GluRule ruleOf(moe::GluOp op);
llvm::Expected<OutputGateRule> ruleOf(moe::OutputGateOp op);
CombineRule ruleOf(moe::CombineOp op);
WeightPrecision ruleOf(moe::RouterOp op);
ResidualRule ruleOf(moe::ResidualOp op);
HeadRule ruleOf(moe::LmHeadOp op);

} // namespace megalith::reference

#endif // MEGALITH_MODELS_REFERENCE_OP_RULES_H
