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

/// Of one row, `epilogue` behind the steps that take its sums from `take`, which are multiplied by
/// `factors`, if any; no steps if the device headers have no such function.
static Fused forwarded(ComputeOp epilogue, StringRef take, ArrayRef<StringRef> factors) {
  StringRef name = epilogue.getCallee().split('<').first,
            own = argumentsOf(epilogue.getCallee(), name);
  if (epilogue->getParentOfType<KernelOp>().getRows() != 1 ||
      !llvm::is_contained({"epilogue_words", "epilogue_logits", "epilogue_glu", "epilogue_outputs"},
                          name))
    return {};
  name.consume_front("epilogue_");
  auto args = textsOf(epilogue.getArgs()); // tile, sum, …
  args.erase(args.begin() + 1);
  args.append(factors.begin(), factors.end());
  return {4, call("forward_" + name + "<" + take + ", " + own + ">", args), "", /*records=*/true};
}

Fused fusedAt(Block::iterator first, Block::iterator end) {
  Triple<WaitOp, ComputeOp, ReleaseOp> s(first, end);
  if (!s || !s.second.getResult())
    return {};
  // Functions that add up, and those that take what they add; "": only together with an epilogue.
  static const std::pair<StringRef, StringRef> kSums[] = {
      {"sum_chunks", "take_part<"}, {"sum_scaled", "take_scaled<"}, {"sum_slice", ""}};
  const auto args = textsOf(s.second.getArgs()); // slot, or slot, factors
  for (auto [sum, fused] : kSums) {
    const StringRef part = argumentsOf(s.second.getCallee(), sum);
    if (part.empty() || args.empty() || args[0] != nameIn(s.first.getResult()))
      continue;
    const auto factors = ArrayRef(args).drop_front();
    const std::string take = (s.first.getEdge() + ", " + s.third.getEdge() + ", " + part).str();
    const auto next = std::next(first, 3);
    if (auto epilogue = next == end ? ComputeOp() : dyn_cast<ComputeOp>(*next))
      if (const Fused all = forwarded(epilogue, take, factors); all.steps > 0)
        return all;
    if (!fused.empty())
      return {3, call(fused + take + ">", factors), s.second.getResult()->str()};
  }
  return {};
}

/// The number `from` of "from + index".
static std::optional<int64_t> startOf(StringRef at, StringRef index) {
  int64_t from = 0;
  if (at.consumeInteger(10, from) || !at.consume_front(" + ") || at != index)
    return std::nullopt;
  return from;
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
    if (rest.consume_front(full) && s.second.getEdge() == s.third.getEdge() && args.size() >= 2) {
      const std::string edges =
          ("<" + s.first.getEdge() + ", " + full + Twine(s.second.getWindow()) + ", " + rest + ">")
              .str();
      if (args[1] == loop.getIndex()) {
        args[1] = pieces;
        return call("stream_pieces" + edges, args);
      }
      const std::optional<int64_t> from = startOf(args[1], loop.getIndex());
      if (from && args.size() == 2)
        return call("stream_pieces_from" + edges, {args[0], std::to_string(*from), pieces});
    }
  }
  if (Triple<WaitOp, ComputeOp, ReleaseOp> s(body.begin(), body.end());
      s && !s.second.getResult()) {
    auto [shape, ring] = argumentsOf(s.second.getCallee(), "gemv_blocks").rsplit(", ");
    const auto args = textsOf(s.second.getArgs()); // sum, slot, tile, piece, column
    if (ring.empty() || args.size() != 5 || args[1] != nameIn(s.first.getResult()))
      return "";
    const std::string edges =
        ("<" + s.first.getEdge() + ", " + s.third.getEdge() + ", " + ring + ", " + shape + ">")
            .str();
    if (args[3] == loop.getIndex())
      return call("multiply_pieces" + edges, {args[0], args[2], pieces, args[4]});
    if (const std::optional<int64_t> from = startOf(args[3], loop.getIndex()))
      return call("multiply_pieces_from" + edges,
                  {args[0], args[2], std::to_string(*from), pieces, args[4]});
  }
  return "";
}

} // namespace megalith
