// Custom syntax of the task dialect's ops, and what is generated of them.
#include "ir/task/Task.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/OpImplementation.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace megalith::task;

// A loop's trip count reads as `4`, `@active` or `[4, 13 - d0]` (the least of these).
static ParseResult parseTrips(OpAsmParser &parser, TripsAttr &trips) {
  MLIRContext *context = parser.getContext();
  int64_t count;
  OptionalParseResult constant = parser.parseOptionalInteger(count);
  if (constant.has_value()) {
    if (failed(*constant))
      return failure();
    trips =
        TripsAttr::get(context, AffineMapAttr::get(AffineMap::getConstantMap(count, context)), {});
    return success();
  }
  StringAttr name;
  if (succeeded(parser.parseOptionalSymbolName(name))) {
    trips = TripsAttr::get(context, {}, FlatSymbolRefAttr::get(name));
    return success();
  }
  AffineMapAttr map;
  if (parseExprs(parser, AsmParser::Delimiter::Square, map))
    return failure();
  trips = TripsAttr::get(context, map, {});
  return success();
}

static void printTrips(OpAsmPrinter &printer, Operation *, TripsAttr trips) {
  if (FlatSymbolRefAttr symbol = trips.getSymbol())
    printer << symbol;
  else if (AffineMap map = trips.getMap().getValue(); map.isSingleConstant())
    printer << map.getSingleConstantResult();
  else {
    printer << '[';
    llvm::interleaveComma(map.getResults(), printer);
    printer << ']';
  }
}

// Accesses read as `[@x[0, 0] 1 x [512], …]`, without the attribute's own brackets.
static ParseResult parseAccess(OpAsmParser &parser, AccessAttr &access) {
  return AccessAttr::parseBody(parser, access);
}

static void printAccess(OpAsmPrinter &printer, Operation *, AccessAttr access) {
  access.printBody(printer);
}

static ParseResult parseAccesses(OpAsmParser &parser, ArrayAttr &accesses) {
  SmallVector<Attribute> list;
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, [&]() -> ParseResult {
        AccessAttr access;
        if (AccessAttr::parseBody(parser, access))
          return failure();
        list.push_back(access);
        return success();
      }))
    return failure();
  accesses = parser.getBuilder().getArrayAttr(list);
  return success();
}

static void printAccesses(OpAsmPrinter &printer, Operation *, ArrayAttr accesses) {
  printer << '[';
  llvm::interleaveComma(accesses.getAsRange<AccessAttr>(), printer,
                        [&](AccessAttr access) { access.printBody(printer); });
  printer << ']';
}

// The roles that wait on an edge read as `consumer, epilogue`.
static ParseResult parseRoles(OpAsmParser &parser, ArrayAttr &roles) {
  SmallVector<Attribute> list;
  auto parseRole = [&]() -> ParseResult {
    StringRef keyword;
    SMLoc loc = parser.getCurrentLocation();
    if (parser.parseKeyword(&keyword))
      return failure();
    std::optional<Role> role = symbolizeRole(keyword);
    if (!role)
      return parser.emitError(loc)
             << "expected producer, poller, consumer or epilogue, but got " << keyword;
    list.push_back(RoleAttr::get(parser.getContext(), *role));
    return success();
  };
  if (parser.parseCommaSeparatedList(parseRole))
    return failure();
  roles = parser.getBuilder().getArrayAttr(list);
  return success();
}

static void printRoles(OpAsmPrinter &printer, Operation *, ArrayAttr roles) {
  llvm::interleaveComma(roles.getAsRange<RoleAttr>(), printer,
                        [&](RoleAttr role) { printer << stringifyRole(role.getValue()); });
}

#define GET_OP_CLASSES
#include "ir/task/TaskOps.cpp.inc"
