//===- StepBuilder.cpp - builds the module of one model ---------------------===//

#include "models/StepBuilder.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace megalith::models {

StepBuilder::StepBuilder(MLIRContext &context, const ModelConfig &config, int64_t rows,
                         int64_t positions)
    : config(config), builder(&context), rows(rows), positions(positions),
      kvType(cache(/*window=*/0)), module(ModuleOp::create(loc("module"))) {}

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

RankedTensorType StepBuilder::streamType() {
  return config.f32Residual ? f32(rows, config.hidden) : bf16(rows, config.hidden);
}

moe::KVType StepBuilder::cache(int64_t window) {
  Type element = config.e4m3Kv ? Type(Float8E4M3FNType::get(builder.getContext()))
                               : Type(builder.getBF16Type());
  return moe::KVType::get(builder.getContext(), config.kvHeads, config.headDim, element, positions,
                          window);
}

Value StepBuilder::kvAppend(Value kv, Value k, Value v, StringRef attention, StringRef where) {
  FlatSymbolRefAttr kScale, vScale;
  if (config.e4m3Kv && config.kvScales) {
    kScale = weight("k_scale", {1}, (attention + "k_proj.k_scale").str(), builder.getF32Type());
    vScale = weight("v_scale", {1}, (attention + "v_proj.v_scale").str(), builder.getF32Type());
  }
  return moe::KvAppendOp::create(builder, loc(where), kv.getType(), kv, k, v, kScale, vScale);
}

FlatSymbolRefAttr StepBuilder::weight(StringRef symbol, ArrayRef<int64_t> shape,
                                      StringRef checkpoint, Type format, moe::PartAttr part) {
  if (module->lookupSymbol<moe::WeightOp>(symbol))
    return FlatSymbolRefAttr::get(builder.getContext(), symbol);
  // All weights stand in front of all functions.
  OpBuilder::InsertionGuard guard(builder);
  Block *body = module->getBody();
  auto functions = body->getOps<func::FuncOp>();
  if (functions.empty())
    builder.setInsertionPointToEnd(body);
  else
    builder.setInsertionPoint(*functions.begin());
  moe::WeightOp::create(builder, loc(checkpoint), symbol, shape,
                        format ? format : builder.getBF16Type(), checkpoint,
                        /*shard=*/moe::ShardAttr(), part);
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

void StepBuilder::embed(StringRef checkpoint, Body after) {
  FlatSymbolRefAttr table = weight("embed_tokens", {config.vocab, config.hidden}, checkpoint);
  Type tokens = RankedTensorType::get({rows}, builder.getI32Type());
  Block *body = function("embed", tokens, streamType());
  Value result = moe::EmbedOp::create(builder, loc("embed_tokens"), bf16(rows, config.hidden),
                                      body->getArgument(0), table.getValue());
  functionReturn(after ? after(result) : result);
}

void StepBuilder::layer(StringRef symbol, moe::KVType kvType, LayerBody make) {
  SmallVector<Type> types = {streamType(), kvType};
  Block *body = function(symbol, types, types);
  auto [stream, kv] = make(body->getArgument(0), body->getArgument(1));
  functionReturn({stream, kv});
}

void StepBuilder::head(StringRef normCheckpoint, StringRef headCheckpoint) {
  FlatSymbolRefAttr gain = weight("final_norm", {config.hidden}, normCheckpoint);
  FlatSymbolRefAttr matrix = weight("lm_head", {config.vocab, config.hidden}, headCheckpoint);
  head([&](Value stream) {
    Value x = rmsNorm(stream, gain, "norm");
    return moe::LmHeadOp::create(builder, loc("lm_head"), f32(rows, config.vocab), x,
                                 matrix.getValue(), /*bias=*/FlatSymbolRefAttr(),
                                 /*multiplier=*/1.0, /*softcap=*/FloatAttr(),
                                 /*valid_vocab=*/IntegerAttr());
  });
}

void StepBuilder::head(Body make) {
  Block *body = function("head", streamType(), f32(rows, config.vocab));
  functionReturn(make(body->getArgument(0)));
}

void StepBuilder::step(ArrayRef<std::string> layerSymbols) {
  builder.setInsertionPointToEnd(module->getBody());
  SmallVector<Attribute> layers;
  for (const std::string &symbol : layerSymbols)
    layers.push_back(FlatSymbolRefAttr::get(builder.getContext(), symbol));
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
