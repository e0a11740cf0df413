//===- MoeModuleOps.cpp - moe.weight and moe.step ---------------------------===//

#include "ir/moe/MoeVerify.h"

#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace megalith::moe::detail;

namespace megalith::moe {

//===----------------------------------------------------------------------===//
// weight
//===----------------------------------------------------------------------===//

SmallVector<int64_t> WeightOp::getCheckpointShape() {
  SmallVector<int64_t> shape(getShape());
  if (PartAttr part = getPartAttr())
    shape[part.getDim()] *= part.getCount();
  return shape;
}

SmallVector<int64_t> WeightOp::getLocalShape() {
  SmallVector<int64_t> shape(getShape());
  if (ShardAttr shard = getShardAttr())
    shape[shard.getDim()] /= shard.getRanks();
  return shape;
}

static void replaceAll(std::string &text, StringRef from, const std::string &to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

std::string WeightOp::getTensorName(int64_t layer, int64_t expert) {
  std::string name = getCheckpoint().str();
  replaceAll(name, kLayer, std::to_string(layer));
  replaceAll(name, kExpert, std::to_string(expert));
  return name;
}

/// Braces in a checkpoint name belong to a known placeholder.
static LogicalResult verifyPlaceholders(WeightOp weight) {
  StringRef rest = weight.getCheckpoint();
  if (rest.empty())
    return weight.emitOpError() << "expected a checkpoint name but got \"\"";
  while (true) {
    size_t brace = rest.find_first_of("{}");
    if (brace == StringRef::npos)
      return success();
    rest = rest.drop_front(brace);
    if (!rest.consume_front(WeightOp::kLayer) && !rest.consume_front(WeightOp::kExpert))
      return weight.emitOpError() << "expected placeholders {layer} and {expert} but got '"
                                  << rest.take_front(rest.find('}') + 1) << "' in \""
                                  << weight.getCheckpoint() << "\"";
  }
}

LogicalResult WeightOp::verify() {
  ArrayRef<int64_t> shape = getShape();
  if (shape.empty() || llvm::any_of(shape, [](int64_t n) { return n < 1; }))
    return emitOpError() << "expected a shape with dimensions of at least 1 but got "
                         << formatShape(shape);
  if (failed(verifyPlaceholders(*this)))
    return failure();
  if (isPerExpert() && shape.size() < 2)
    return emitOpError() << "expected a shape [experts, ...] with {expert} in the name but got "
                         << formatShape(shape);
  if (PartAttr part = getPartAttr())
    if (part.getDim() >= static_cast<int64_t>(shape.size()))
      return emitOpError() << "expected a part along a dimension below " << shape.size()
                           << " but got " << part.getDim();
  if (ShardAttr shard = getShardAttr()) {
    if (shard.getDim() >= static_cast<int64_t>(shape.size()))
      return emitOpError() << "expected a sharded dimension below " << shape.size() << " but got "
                           << shard.getDim();
    if (failed(expectDivides(*this, "ranks", shard.getRanks(), "the sharded dimension",
                             shape[shard.getDim()])))
      return failure();
  }
  Type format = getFormat();
  if (format.isBF16() || format.isF32())
    return success();
  auto block = dyn_cast<BlockFormatType>(format);
  if (!block)
    return emitOpError() << "expected format bf16, f32 or !moe.block_format but got " << format;
  if (shape.size() < 2)
    return emitOpError() << "expected a matrix for a blocked format but got shape "
                         << formatShape(shape);
  // FP8 tiles may be cut short by the matrix's edge; sub-byte rows are packed whole.
  if (isa<Float4E2M1FNType>(block.getCode()))
    return expectDivides(*this, "the block's width", block.getBlockCols(), "the local inner width",
                         getLocalShape().back());
  return success();
}

//===----------------------------------------------------------------------===//
// step
//===----------------------------------------------------------------------===//

/// layers ::= symbol (`*` count)? (`,` layers)?
ParseResult parseLayers(OpAsmParser &parser, ArrayAttr &layers) {
  SmallVector<Attribute> list;
  auto parseRun = [&]() -> ParseResult {
    FlatSymbolRefAttr kind;
    if (parser.parseAttribute(kind, parser.getBuilder().getType<NoneType>()))
      return failure();
    int64_t count = 1;
    if (succeeded(parser.parseOptionalStar())) {
      SMLoc at = parser.getCurrentLocation();
      if (parser.parseInteger(count))
        return failure();
      // Far above any model: a bound keeps a typing error from filling memory.
      if (count < 1 || count > 10000)
        return parser.emitError(at) << "expected 1 to 10000 layers but got " << count;
    }
    list.append(count, kind);
    return success();
  };
  if (parser.parseCommaSeparatedList(parseRun))
    return failure();
  layers = parser.getBuilder().getArrayAttr(list);
  return success();
}

void printLayers(OpAsmPrinter &printer, Operation *, ArrayAttr layers) {
  ArrayRef<Attribute> rest = layers.getValue();
  while (!rest.empty()) {
    Attribute kind = rest.front();
    size_t run = llvm::find_if(rest, [&](Attribute a) { return a != kind; }) - rest.begin();
    printer << kind;
    if (run > 1)
      printer << " * " << run;
    rest = rest.drop_front(run);
    if (!rest.empty())
      printer << ", ";
  }
}

LogicalResult StepOp::verify() {
  if (getLayers().empty())
    return emitOpError() << "expected at least 1 layer but got none";
  return success();
}

/// The function that `ref` names, or null with an error.
static FunctionOpInterface lookupFunction(StepOp step, SymbolTableCollection &symbols,
                                          FlatSymbolRefAttr ref, StringRef role) {
  Operation *symbol = symbols.lookupNearestSymbolFrom(step, ref);
  auto function = dyn_cast_if_present<FunctionOpInterface>(symbol);
  if (!function)
    step.emitOpError() << "expected " << role << " to name a function but got " << ref
                       << (symbol ? "" : ", which is not defined");
  return function;
}

static LogicalResult expectSignature(StepOp step, StringRef role, FunctionOpInterface function,
                                     ArrayRef<Type> inputs, ArrayRef<Type> results) {
  if (function.getArgumentTypes() == inputs && function.getResultTypes() == results)
    return success();
  MLIRContext *context = step.getContext();
  return step.emitOpError() << "expected " << role << " of type "
                            << FunctionType::get(context, inputs, results) << " but got "
                            << FunctionType::get(context, function.getArgumentTypes(),
                                                 function.getResultTypes());
}

LogicalResult StepOp::verifySymbolUses(SymbolTableCollection &symbols) {
  FunctionOpInterface embed = lookupFunction(*this, symbols, getEmbedAttr(), "embed");
  FunctionOpInterface head = lookupFunction(*this, symbols, getHeadAttr(), "head");
  if (!embed || !head)
    return failure();

  auto isMatrix = [](Type type) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    return tensor && tensor.getRank() == 2 && tensor.hasStaticShape();
  };
  if (embed.getNumArguments() != 1 || embed.getNumResults() != 1 ||
      !isMatrix(embed.getResultTypes().front()))
    return emitOpError() << "expected embed of type (tokens) -> residual [R, H] but got "
                         << embed.getFunctionType();
  auto residual = cast<RankedTensorType>(embed.getResultTypes().front());
  auto tokens = RankedTensorType::get({residual.getDimSize(0)}, IntegerType::get(getContext(), 32));
  if (failed(expectSignature(*this, "embed", embed, {tokens}, {residual})))
    return failure();

  if (head.getNumArguments() != 1 || head.getArgumentTypes().front() != residual ||
      head.getNumResults() != 1 || !isMatrix(head.getResultTypes().front()))
    return emitOpError() << "expected head of type (" << residual << ") -> logits [R, V] but got "
                         << head.getFunctionType();

  Attribute previous;
  for (Attribute layer : getLayers()) {
    if (layer == previous)
      continue;
    previous = layer;
    auto ref = cast<FlatSymbolRefAttr>(layer);
    FunctionOpInterface function = lookupFunction(*this, symbols, ref, "a layer");
    if (!function)
      return failure();
    if (function.getNumArguments() != 2 || !isa<KVType>(function.getArgumentTypes().back()))
      return emitOpError() << "expected layer " << ref << " of type (" << residual
                           << ", !moe.kv) -> (" << residual << ", !moe.kv) but got "
                           << function.getFunctionType();
    Type kv = function.getArgumentTypes().back();
    if (failed(expectSignature(*this, ("layer @" + ref.getValue()).str(), function, {residual, kv},
                               {residual, kv})))
      return failure();
  }
  return success();
}

} // namespace megalith::moe
