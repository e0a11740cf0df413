//===- MoeDialect.cpp - registration, types and attributes ------------------===//

#include "ir/moe/Moe.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

#include "ir/moe/MoeDialect.cpp.inc"
#include "ir/moe/MoeEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "ir/moe/MoeAttrs.cpp.inc"

#define GET_TYPEDEF_CLASSES
#include "ir/moe/MoeTypes.cpp.inc"

namespace megalith::moe {
// The list of layers in moe.step; defined in MoeModuleOps.cpp.
ParseResult parseLayers(OpAsmParser &parser, ArrayAttr &layers);
void printLayers(OpAsmPrinter &printer, Operation *op, ArrayAttr layers);
} // namespace megalith::moe

#define GET_OP_CLASSES
#include "ir/moe/MoeOps.cpp.inc"

namespace megalith::moe {

void MoeDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "ir/moe/MoeAttrs.cpp.inc"
      >();
  addTypes<
#define GET_TYPEDEF_LIST
#include "ir/moe/MoeTypes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "ir/moe/MoeOps.cpp.inc"
      >();
}

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

BlockFormatType BlockFormatType::getNVFP4(MLIRContext *context) {
  return get(context, Float4E2M1FNType::get(context), 1, 16, Float8E4M3FNType::get(context),
             Float32Type::get(context));
}

BlockFormatType BlockFormatType::getMXFP4(MLIRContext *context) {
  return get(context, Float4E2M1FNType::get(context), 1, 32, Float8E8M0FNUType::get(context),
             Type());
}

BlockFormatType BlockFormatType::getFP8Block(MLIRContext *context, Type scale) {
  return get(context, Float8E4M3FNType::get(context), 128, 128, scale, Type());
}

int64_t BlockFormatType::getBytes(int64_t rows, int64_t cols) {
  int64_t blocks = llvm::divideCeil(rows, getBlockRows()) * llvm::divideCeil(cols, getBlockCols());
  int64_t codeBits = rows * cols * getCode().getIntOrFloatBitWidth();
  return llvm::divideCeil(codeBits, 8) + blocks * getScale().getIntOrFloatBitWidth() / 8;
}

LogicalResult BlockFormatType::verify(llvm::function_ref<InFlightDiagnostic()> emitError, Type code,
                                      int64_t blockRows, int64_t blockCols, Type scale,
                                      Type global) {
  if (!isa<Float4E2M1FNType, Float8E4M3FNType>(code))
    return emitError() << "expected code f4E2M1FN or f8E4M3FN but got " << code;
  if (blockRows < 1 || blockCols < 1)
    return emitError() << "expected a block of at least [1, 1] but got [" << blockRows << ", "
                       << blockCols << "]";
  if (!isa<Float8E4M3FNType, Float8E8M0FNUType, BFloat16Type, Float32Type>(scale))
    return emitError() << "expected scale f8E4M3FN, f8E8M0FNU, bf16 or f32 but got " << scale;
  if (global && !global.isF32())
    return emitError() << "expected global scale f32 but got " << global;
  return success();
}

LogicalResult KVType::verify(llvm::function_ref<InFlightDiagnostic()> emitError, int64_t heads,
                             int64_t headDim, Type element, int64_t positions, int64_t window) {
  if (heads < 1 || headDim < 1)
    return emitError() << "expected heads and head_dim of at least 1 but got " << heads << " and "
                       << headDim;
  if (!isa<BFloat16Type, Float8E4M3FNType>(element))
    return emitError() << "expected element bf16 or f8E4M3FN but got " << element;
  if (positions < 1)
    return emitError() << "expected positions of at least 1 but got " << positions;
  if (window < 0)
    return emitError() << "expected window of at least 0 (0: none) but got " << window;
  return success();
}

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

LogicalResult ShardAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError, int64_t dim,
                                int64_t ranks) {
  if (dim < 0)
    return emitError() << "expected dim of at least 0 but got " << dim;
  if (ranks < 1)
    return emitError() << "expected ranks of at least 1 but got " << ranks;
  return success();
}

LogicalResult PartAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError, int64_t dim,
                               int64_t index, int64_t count) {
  if (dim < 0)
    return emitError() << "expected dim of at least 0 but got " << dim;
  if (index < 0 || index >= count)
    return emitError() << "expected index of 0 to count - 1 but got " << index << " of " << count;
  return success();
}

/// What each kind of scaling takes; see the attribute's description.
static ArrayRef<StringRef> scalingParameters(RopeScalingKind kind) {
  static const StringRef linear[] = {"factor"};
  static const StringRef yarn[] = {"factor", "original_context", "beta_fast", "beta_slow",
                                   "attention_factor"};
  static const StringRef llama3[] = {"factor", "low_freq_factor", "high_freq_factor",
                                     "original_context"};
  static const StringRef longRope[] = {"short_factor", "long_factor", "original_context",
                                       "attention_factor"};
  switch (kind) {
  case RopeScalingKind::Linear:
    return linear;
  case RopeScalingKind::Yarn:
    return yarn;
  case RopeScalingKind::Llama3:
    return llama3;
  case RopeScalingKind::LongRope:
    return longRope;
  }
  llvm_unreachable("every kind returns above");
}

LogicalResult RopeScalingAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                                      RopeScalingKind kind, DictionaryAttr parameters) {
  ArrayRef<StringRef> names = scalingParameters(kind);
  for (StringRef name : names) {
    Attribute value = parameters.get(name);
    bool list = name.starts_with("short_") || name.starts_with("long_");
    if (!value)
      return emitError() << "expected parameter '" << name << "' of " << stringifyEnum(kind)
                         << " scaling but got none";
    if (list ? !isa<DenseF64ArrayAttr>(value) : !isa<FloatAttr>(value))
      return emitError() << "expected parameter '" << name << "' to be "
                         << (list ? "a dense f64 array" : "an f64") << " but got " << value;
  }
  for (NamedAttribute given : parameters)
    if (!llvm::is_contained(names, given.getName().strref()))
      return emitError() << "expected a parameter of " << stringifyEnum(kind)
                         << " scaling but got '" << given.getName().strref() << "'";
  return success();
}

} // namespace megalith::moe
