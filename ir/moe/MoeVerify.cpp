//===- MoeVerify.cpp - checks shared by the operations' verifiers -----------===//

#include "ir/moe/MoeVerify.h"

#include "llvm/Support/raw_ostream.h"

#include <cmath>

using namespace mlir;

namespace megalith::moe {

WeightOp lookupWeight(Operation *from, FlatSymbolRefAttr ref) {
  return ref ? SymbolTable::lookupNearestSymbolFrom<WeightOp>(from, ref) : WeightOp();
}

namespace detail {

std::string formatShape(ArrayRef<int64_t> shape) {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << '[';
  llvm::interleaveComma(shape, os);
  os << ']';
  return text;
}

LogicalResult expectShape(Operation *op, StringRef what, Value value, ArrayRef<int64_t> shape) {
  ArrayRef<int64_t> got = cast<RankedTensorType>(value.getType()).getShape();
  if (got == shape)
    return success();
  return op->emitOpError() << "expected " << what << " of shape " << formatShape(shape)
                           << " but got " << formatShape(got);
}

LogicalResult expectSameType(Operation *op, StringRef what, Value value, Type type) {
  if (value.getType() == type)
    return success();
  return op->emitOpError() << "expected " << what << " of type " << type << " but got "
                           << value.getType();
}

LogicalResult expectPositive(Operation *op, StringRef name, int64_t value) {
  if (value > 0)
    return success();
  return op->emitOpError() << "expected " << name << " of at least 1 but got " << value;
}

LogicalResult expectPositive(Operation *op, StringRef name, double value) {
  if (value > 0 && std::isfinite(value))
    return success();
  return op->emitOpError() << "expected " << name << " to be finite and above 0 but got " << value;
}

LogicalResult expectFinite(Operation *op, StringRef name, double value) {
  if (std::isfinite(value))
    return success();
  return op->emitOpError() << "expected " << name << " to be finite but got " << value;
}

LogicalResult expectDivides(Operation *op, StringRef divisorName, int64_t divisor,
                            StringRef valueName, int64_t value) {
  if (divisor > 0 && value % divisor == 0)
    return success();
  return op->emitOpError() << "expected " << valueName << " to be a multiple of " << divisorName
                           << " " << divisor << " but got " << value;
}

LogicalResult expectPresence(Operation *op, StringRef name, bool present, bool wanted,
                             StringRef when) {
  if (present == wanted)
    return success();
  return op->emitOpError() << "expected " << name << (wanted ? " to be given " : " to be absent ")
                           << when << " but got " << (present ? "one" : "none");
}

LogicalResult expectWeight(Operation *op, SymbolTableCollection &symbols, FlatSymbolRefAttr ref,
                           StringRef role, ArrayRef<int64_t> shape) {
  if (!ref)
    return success();
  Operation *symbol = symbols.lookupNearestSymbolFrom(op, ref);
  if (!symbol)
    return op->emitOpError() << "expected " << role << " to name a moe.weight but got " << ref
                             << ", which is not defined";
  auto weight = dyn_cast<WeightOp>(symbol);
  if (!weight)
    return op->emitOpError() << "expected " << role << " to name a moe.weight but got " << ref
                             << ", a " << symbol->getName();
  SmallVector<int64_t> local = weight.getLocalShape();
  if (ArrayRef<int64_t>(local) == shape)
    return success();
  InFlightDiagnostic diag = op->emitOpError()
                            << "expected " << role << " of shape " << formatShape(shape)
                            << " but got " << ref << " of " << formatShape(local);
  diag.attachNote(weight.getLoc()) << "the weight is defined here";
  return diag;
}

} // namespace detail
} // namespace megalith::moe
