//===- StepBuilder.cpp - builds the module of one model ---------------------===//

#include "models/StepBuilder.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace megalith::models {

StepBuilder::StepBuilder(MLIRContext &context, const ModelConfig &config, int64_t rows,
                         int64_t positions)
    : config(config), builder(&context), rows(rows),
      kvType(moe::KVType::get(&context, config.kvHeads, config.headDim, builder.getBF16Type(),
                              positions, /*window=*/0)),
      module(ModuleOp::create(loc("module"))) {}

Location StepBuilder::loc(StringRef where) {
  // The file as a whole: a parsed config no longer knows its lines.
  Location file = FileLineColLoc::get(builder.getContext(), config.source, 0, 0);
  return NameLoc::get(builder.getStringAttr(where), file);
}

RankedTensorType StepBuilder::bf16(int64_t rows, int64_t columns) {
  return RankedTensorType::get({rows, columns}, builder.getBF16Type());
}

RankedTensorType StepBuilder::f32(int64_t rows, int64_t columns) {
  return RankedTensorType::get({rows, columns}, builder.getF32Type());
}

FlatSymbolRefAttr StepBuilder::weight(StringRef symbol, ArrayRef<int64_t> shape,
                                      StringRef checkpoint) {
  // All weights stand in front of all functions.
  OpBuilder::InsertionGuard guard(builder);
  Block *body = module->getBody();
  auto functions = body->getOps<func::FuncOp>();
  if (functions.empty())
    builder.setInsertionPointToEnd(body);
  else
    builder.setInsertionPoint(*functions.begin());
  moe::WeightOp::create(builder, loc(checkpoint), symbol, shape, builder.getBF16Type(), checkpoint,
                        /*shard=*/moe::ShardAttr());
  return FlatSymbolRefAttr::get(builder.getContext(), symbol);
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

Block *StepBuilder::function(StringRef symbol, TypeRange inputs, TypeRange results) {
  builder.setInsertionPointToEnd(module->getBody());
  auto function =
      func::FuncOp::create(builder, loc(symbol), symbol, builder.getFunctionType(inputs, results));
  Block *body = function.addEntryBlock();
  builder.setInsertionPointToStart(body);
  return body;
}

void StepBuilder::functionReturn(ValueRange values) {
  func::ReturnOp::create(builder, builder.getBlock()->getParentOp()->getLoc(), values);
}

void StepBuilder::embed(StringRef checkpoint) {
  FlatSymbolRefAttr table = weight("embed_tokens", {config.vocab, config.hidden}, checkpoint);
  RankedTensorType stream = bf16(rows, config.hidden);
  Type tokens = RankedTensorType::get({rows}, builder.getI32Type());
  Block *body = function("embed", tokens, stream);
  Value result = moe::EmbedOp::create(builder, loc("embed_tokens"), stream, body->getArgument(0),
                                      table.getValue());
  functionReturn(result);
}

void StepBuilder::layer(StringRef symbol, LayerBody make) {
  SmallVector<Type> types = {bf16(rows, config.hidden), kvType};
  Block *body = function(symbol, types, types);
  auto [stream, kv] = make(body->getArgument(0), body->getArgument(1));
  functionReturn({stream, kv});
}

void StepBuilder::head(StringRef normCheckpoint, StringRef headCheckpoint) {
  FlatSymbolRefAttr gain = weight("final_norm", {config.hidden}, normCheckpoint);
  FlatSymbolRefAttr matrix = weight("lm_head", {config.vocab, config.hidden}, headCheckpoint);
  RankedTensorType logits = f32(rows, config.vocab);
  Block *body = function("head", bf16(rows, config.hidden), logits);
  Value x = rmsNorm(body->getArgument(0), gain, "norm");
  Value result = moe::LmHeadOp::create(builder, loc("lm_head"), logits, x, matrix.getValue(),
                                       /*bias=*/FlatSymbolRefAttr(), /*multiplier=*/1.0,
                                       /*softcap=*/FloatAttr(), /*valid_vocab=*/IntegerAttr());
  functionReturn(result);
}

void StepBuilder::step(StringRef layerSymbol) {
  builder.setInsertionPointToEnd(module->getBody());
  MLIRContext *context = builder.getContext();
  SmallVector<Attribute> layers(config.layers, FlatSymbolRefAttr::get(context, layerSymbol));
  moe::StepOp::create(builder, loc("decode"), "decode", "embed", builder.getArrayAttr(layers),
                      "head");
}

//===----------------------------------------------------------------------===//
// Parts of a layer
//===----------------------------------------------------------------------===//

Value StepBuilder::rmsNorm(Value x, FlatSymbolRefAttr gain, StringRef where) {
  return moe::NormOp::create(builder, loc(where), x.getType(), x, moe::NormKind::Rms,
                             config.normEps, gain, /*bias=*/FlatSymbolRefAttr(), moe::NormOver::Row,
                             /*head_dim=*/IntegerAttr());
}

Value StepBuilder::residual(Value stream, Value branch, StringRef where) {
  return moe::ResidualOp::create(builder, loc(where), stream.getType(), stream, ValueRange(branch),
                                 moe::ResidualKind::Plain, /*scale=*/FloatAttr(),
                                 /*gate=*/FlatSymbolRefAttr(), /*temperature=*/FloatAttr(),
                                 /*floor=*/FloatAttr());
}

} // namespace megalith::models
