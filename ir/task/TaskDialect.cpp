// Registration, attributes and map evaluation of the task dialect.
#include "ir/task/Task.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace megalith::task;

#include "ir/task/TaskDialect.cpp.inc"
#include "ir/task/TaskEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "ir/task/TaskAttrs.cpp.inc"

void TaskDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "ir/task/TaskAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "ir/task/TaskOps.cpp.inc"
      >();
}

LogicalResult TripsAttr::verify(function_ref<InFlightDiagnostic()> emitError, AffineMapAttr map,
                                FlatSymbolRefAttr symbol) {
  if (!map == !symbol)
    return emitError() << "trip count expected either a map or a symbol, but got "
                       << (map ? "both" : "neither");
  return success();
}

// Dimensions are spelled d0, d1, … as MLIR prints them; eight are more than any loop nest has.
ParseResult megalith::task::parseExprs(AsmParser &parser, AsmParser::Delimiter delimiter,
                                       AffineMapAttr &map) {
  static constexpr StringLiteral kNames[] = {"d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7"};
  SmallVector<std::pair<StringRef, AffineExpr>> names;
  for (auto [index, name] : llvm::enumerate(kNames))
    names.emplace_back(name, getAffineDimExpr(index, parser.getContext()));
  SmallVector<AffineExpr> exprs;
  if (parser.parseCommaSeparatedList(delimiter, [&]() -> ParseResult {
        return parser.parseAffineExpr(names, exprs.emplace_back());
      }))
    return failure();
  map = affineMapAttr(exprs, parser.getContext());
  return success();
}

AffineMapAttr megalith::task::affineMapAttr(ArrayRef<AffineExpr> exprs, MLIRContext *context) {
  unsigned dims = 0;
  for (AffineExpr expr : exprs)
    expr.walk([&](AffineExpr e) {
      if (auto dim = dyn_cast<AffineDimExpr>(e))
        dims = std::max(dims, dim.getPosition() + 1);
    });
  return AffineMapAttr::get(AffineMap::get(dims, 0, exprs, context));
}

ParseResult AccessAttr::parseBody(AsmParser &parser, AccessAttr &access) {
  FlatSymbolRefAttr buffer, table;
  AffineMapAttr at, cols;
  int64_t rows;
  if (parser.parseAttribute(buffer) || parseExprs(parser, AsmParser::Delimiter::Square, at) ||
      parser.parseInteger(rows) || parser.parseKeyword("x") ||
      parseExprs(parser, AsmParser::Delimiter::Square, cols))
    return failure();
  if (succeeded(parser.parseOptionalKeyword("table")) && parser.parseAttribute(table))
    return failure();
  Set set = succeeded(parser.parseOptionalKeyword("previous")) ? Set::Previous : Set::Current;
  bool isOwn = succeeded(parser.parseOptionalKeyword("own"));
  access = get(parser.getContext(), buffer, at, rows, cols, table, set, isOwn);
  return success();
}

void AccessAttr::printBody(AsmPrinter &printer) const {
  printer << getBuffer() << '[';
  llvm::interleaveComma(getAt().getValue().getResults(), printer);
  printer << "] " << getRows() << " x [";
  llvm::interleaveComma(getCols().getValue().getResults(), printer);
  printer << ']';
  if (getTable())
    printer << " table " << getTable();
  if (getSet() == Set::Previous)
    printer << " previous";
  if (getOwn())
    printer << " own";
}

AccessAttr AccessAttr::withOwn(bool isOwn) const {
  return get(getContext(), getBuffer(), getAt(), getRows(), getCols(), getTable(), getSet(), isOwn);
}

Attribute AccessAttr::parse(AsmParser &parser, Type) {
  AccessAttr access;
  if (parser.parseLess() || parseBody(parser, access) || parser.parseGreater())
    return {};
  return access;
}

void AccessAttr::print(AsmPrinter &printer) const {
  printer << '<';
  printBody(printer);
  printer << '>';
}

static int64_t evalExpr(AffineExpr expr, ArrayRef<int64_t> dims) {
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return constant.getValue();
  if (auto dim = dyn_cast<AffineDimExpr>(expr))
    return dim.getPosition() < dims.size() ? dims[dim.getPosition()] : 0;
  auto binary = cast<AffineBinaryOpExpr>(expr);
  int64_t lhs = evalExpr(binary.getLHS(), dims), rhs = evalExpr(binary.getRHS(), dims);
  switch (expr.getKind()) {
  case AffineExprKind::Add:
    return lhs + rhs;
  case AffineExprKind::Mul:
    return lhs * rhs;
  case AffineExprKind::Mod:
    return rhs ? ((lhs % rhs) + rhs) % rhs : 0;
  case AffineExprKind::FloorDiv:
    return rhs ? llvm::divideFloorSigned(lhs, rhs) : 0;
  case AffineExprKind::CeilDiv:
    return rhs ? llvm::divideCeilSigned(lhs, rhs) : 0;
  default:
    llvm_unreachable("maps of the task dialect have no symbols");
  }
}

SmallVector<int64_t> megalith::task::evalAll(AffineMap map, ArrayRef<int64_t> dims) {
  SmallVector<int64_t> values;
  for (AffineExpr expr : map.getResults())
    values.push_back(evalExpr(expr, dims));
  return values;
}

int64_t megalith::task::evalMin(AffineMap map, ArrayRef<int64_t> dims) {
  int64_t least = INT64_MAX;
  for (int64_t value : evalAll(map, dims))
    least = std::min(least, value);
  return std::max<int64_t>(least, 0);
}
