#include "passes/graph/StageBuilder.h"

#include "passes/graph/WeightFormats.h"

using namespace mlir;
using namespace megalith;
using namespace megalith::graph;
using namespace megalith::task;

StageBuilder::StageBuilder(KernelOp kernel, int64_t rows)
    : kernel(kernel), builder(OpBuilder::atBlockEnd(&kernel.getBody().front())), rowsBucket(rows) {}

std::string StageBuilder::unique(StringRef name) {
  std::string candidate = name.str();
  for (int i = 2; SymbolTable::lookupSymbolIn(kernel, candidate); ++i)
    candidate = (name + std::to_string(i)).str();
  return candidate;
}

FlatSymbolRefAttr StageBuilder::value(StringRef name, int64_t rows, int64_t cols, Type element,
                                      bool isCrossing) {
  std::string symbol = unique(name);
  auto buffer = BufferOp::create(builder, kernel.getLoc(), symbol, ArrayRef<int64_t>{rows, cols},
                                 element, Space::Global, Mutability::Value);
  if (isCrossing)
    buffer.setCrossing(true);
  return FlatSymbolRefAttr::get(builder.getContext(), symbol);
}

FlatSymbolRefAttr StageBuilder::global(StringRef name, int64_t rows, int64_t cols, Type element,
                                       Mutability mutability, StringRef checkpoint, bool isNext,
                                       DictionaryAttr load) {
  std::string symbol = unique(name);
  auto buffer = BufferOp::create(builder, kernel.getLoc(), symbol, ArrayRef<int64_t>{rows, cols},
                                 element, Space::Global, mutability);
  buffer.setSlot(nextSlot++);
  if (!checkpoint.empty()) {
    buffer.setCheckpoint(checkpoint);
    buffer.setLayerOffset(isNext);
    if (load)
      buffer.setLoadAttr(load);
  }
  return FlatSymbolRefAttr::get(builder.getContext(), symbol);
}

FailureOr<FlatSymbolRefAttr> StageBuilder::weights(StringRef name, int64_t n, int64_t k,
                                                   int64_t experts, Pairing pairing,
                                                   ArrayRef<moe::WeightOp> tensors, bool isNext,
                                                   bool isWide) {
  const bool nvfp4 = isNvfp4(tensors);
  std::string symbol = unique(nvfp4 ? (name + "_nvfp4").str() : name.str());
  SmallVector<StringRef> checkpoint;
  for (moe::WeightOp tensor : tensors)
    checkpoint.push_back(tensor.getCheckpoint());
  auto op = WeightsOp::create(builder, kernel.getLoc(), symbol, n, k, nextSlot++, experts, pairing,
                              builder.getStrArrayAttr(checkpoint), /*layer_offset=*/isNext,
                              /*rank_rows=*/DenseI64ArrayAttr());
  op.setWide(isWide);
  op.setNvfp4(nvfp4);
  if (failed(checkWeightFormats(op, tensors)))
    return failure();
  return FlatSymbolRefAttr::get(builder.getContext(), symbol);
}

Type StageBuilder::elementOf(const Source &source) {
  return kernel.lookup<BufferOp>(source.buffer).getElement();
}

AccessAttr StageBuilder::whole(const Source &source) {
  MLIRContext *context = builder.getContext();
  int64_t rows, cols;
  if (auto buffer = kernel.lookup<BufferOp>(source.buffer)) {
    rows = buffer.rows();
    cols = buffer.cols();
  } else {
    auto weights = kernel.lookup<WeightsOp>(source.buffer);
    rows = weights.strips();
    cols = weights.blocks();
  }
  AffineExpr zero = getAffineConstantExpr(0, context);
  return AccessAttr::get(context, source.buffer, affineMapAttr({zero, zero}, context), rows,
                         affineMapAttr({getAffineConstantExpr(cols, context)}, context), {},
                         source.set);
}

StageOp StageBuilder::stage(StringRef name, StageKind kind, Operation *from,
                            ArrayRef<Attribute> reads, ArrayRef<Attribute> writes,
                            ArrayRef<NamedAttribute> config, bool hasStaticTiles) {
  auto one = builder.getI64IntegerAttr(1);
  auto op = StageOp::create(
      builder, from->getLoc(), builder.getStringAttr(unique(name)),
      StageKindAttr::get(builder.getContext(), kind), hasStaticTiles ? one : IntegerAttr(),
      hasStaticTiles ? one : IntegerAttr(), AffineMapAttr(), builder.getArrayAttr(reads),
      builder.getArrayAttr(writes), builder.getDictionaryAttr(config),
      builder.getStringAttr(from->getName().getStringRef()), DenseI64ArrayAttr());
  return op;
}

NamedAttribute StageBuilder::key(StringRef name, int64_t value) {
  return builder.getNamedAttr(name, builder.getI64IntegerAttr(value));
}
NamedAttribute StageBuilder::key(StringRef name, double value) {
  return builder.getNamedAttr(name, builder.getF64FloatAttr(value));
}
NamedAttribute StageBuilder::key(StringRef name, StringRef value) {
  return builder.getNamedAttr(name, builder.getStringAttr(value));
}
NamedAttribute StageBuilder::key(StringRef name, Attribute value) {
  return builder.getNamedAttr(name, value);
}
