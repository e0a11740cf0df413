//===- Fused.cpp - Steps printed as one call ------------------------------===//

#include "codegen/Fused.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/Twine.h"

using namespace mlir;
using namespace megalith::task;

namespace megalith {

/// The template arguments of a callee `name<…>`; "" if it is another function's.
static StringRef argumentsOf(StringRef callee, StringRef name) {
  return callee.consume_front(name) && callee.consume_front("<") && callee.consume_back(">")
             ? callee
             : "";
}

static SmallVector<StringRef> textsOf(ArrayAttr args) {
  SmallVector<StringRef> texts;
  for (auto argument : args.getAsRange<StringAttr>())
    texts.push_back(argument.getValue());
  return texts;
}

static std::string call(const Twine &target, ArrayRef<StringRef> args) {
  std::string text = (target + "(cta").str();
  for (StringRef argument : args)
    text += (", " + argument).str();
  return text + ")";
}

namespace {
/// Three steps of a block, if the ops are of these kinds.
template <class First, class Second, class Third> struct Triple {
  First first;
  Second second;
  Third third;

  Triple(Block::iterator at, Block::iterator end) {
    Operation *ops[3] = {};
    for (Operation *&op : ops)
      if (at != end)
        op = &*at++;
    first = dyn_cast_or_null<First>(ops[0]);
    second = dyn_cast_or_null<Second>(ops[1]);
    third = dyn_cast_or_null<Third>(ops[2]);
  }
  explicit operator bool() { return first && second && third; }
};
} // namespace

/// `int slot` of a step with `result = "const int slot"`.
static StringRef nameIn(std::optional<StringRef> result) {
  return result ? result->rsplit(' ').second : "";
}

Fused fusedAt(Block::iterator first, Block::iterator end) {
  if (Triple<WaitOp, ComputeOp, ReleaseOp> s(first, end); s && s.second.getResult()) {
    const auto args = textsOf(s.second.getArgs());
    for (auto [callee, fused] :
         {std::pair("sum_chunks", "take_part<"), std::pair("sum_scaled", "take_scaled<")}) {
      const StringRef part = argumentsOf(s.second.getCallee(), callee);
      if (!part.empty() && !args.empty() && args[0] == nameIn(s.first.getResult()))
        return {3,
                call(fused + s.first.getEdge() + ", " + s.third.getEdge() + ", " + part + ">",
                     ArrayRef(args).drop_front()),
                s.second.getResult()->str()};
    }
  }
  return {};
}

std::string fusedLoop(ForOp loop) {
  AffineMapAttr trips = loop.getTrips().getMap();
  Block &body = loop.getBody().front();
  if (loop->hasAttr("unrolled") || !trips || trips.getValue().getNumResults() != 1 ||
      body.getOperations().size() != 3)
    return "";
  const auto bound = dyn_cast<AffineConstantExpr>(trips.getValue().getResult(0));
  if (!bound || bound.getValue() < 1)
    return "";
  const std::string pieces = std::to_string(bound.getValue());
  if (Triple<AcquireOp, PaceOp, CopyOp> s(body.begin(), body.end()); s && !s.first.getResult()) {
    StringRef rest = argumentsOf(s.third.getCallee(), "copy_piece");
    auto args = textsOf(s.third.getArgs());
    const std::string full = (s.third.getEdge() + ", ").str();
    if (rest.consume_front(full) && s.second.getEdge() == s.third.getEdge() && args.size() >= 2 &&
        args[1] == loop.getIndex()) {
      args[1] = pieces;
      return call("stream_pieces<" + s.first.getEdge() + ", " + full + Twine(s.second.getWindow()) +
                      ", " + rest + ">",
                  args);
    }
  }
  if (Triple<WaitOp, ComputeOp, ReleaseOp> s(body.begin(), body.end());
      s && !s.second.getResult()) {
    auto [shape, ring] = argumentsOf(s.second.getCallee(), "gemv_blocks").rsplit(", ");
    const auto args = textsOf(s.second.getArgs()); // sum, slot, tile, piece, column
    if (!ring.empty() && args.size() == 5 && args[1] == nameIn(s.first.getResult()) &&
        args[3] == loop.getIndex())
      return call("multiply_pieces<" + s.first.getEdge() + ", " + s.third.getEdge() + ", " + ring +
                      ", " + shape + ">",
                  {args[0], args[2], pieces, args[4]});
  }
  return "";
}

} // namespace megalith
