//===- Calls.cpp - What calls of device functions say to each other -------===//
//
// Slots come from the edges that number them, results are taken up, nothing is done twice, and
// functions that share a state in registers come in their order. The last is known by name only
// (kAttention and the like): role regions do not say what a call keeps between calls.
//
//===----------------------------------------------------------------------===//

#include "passes/verify/Calls.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"

#include <optional>

using namespace mlir;
using namespace megalith;
using namespace megalith::task;

/// The names in a piece of C++.
static SmallVector<StringRef> namesIn(StringRef text) {
  SmallVector<StringRef> names;
  auto isPart = [](char c) { return llvm::isAlnum(c) || c == '_'; };
  while (!text.empty()) {
    StringRef name = text.take_while(isPart);
    if (!name.empty() && !llvm::isDigit(name.front()))
      names.push_back(name);
    text = text.drop_front(std::max<size_t>(1, name.size()));
  }
  return names;
}

/// What a declaration like "const int slot" declares.
static StringRef declared(StringAttr declaration) {
  return declaration ? declaration.getValue().rsplit(' ').second : StringRef();
}

/// The name that a step leaves for later ones, or "".
static StringRef resultOf(Operation *op) {
  if (auto local = dyn_cast<LocalOp>(op))
    return local.getName().split('[').first; // "sums" of "sums[4]"
  return declared(op->getAttrOfType<StringAttr>("result"));
}

/// The steps before `op` that C++ sees there, nearest first; `use` says whether to go on.
static void eachBefore(Operation *op, llvm::function_ref<bool(Operation *)> use) {
  for (; !isa<RoleOp>(op); op = op->getParentOp())
    for (Operation *before = op->getPrevNode(); before; before = before->getPrevNode())
      if (!use(before))
        return;
}

llvm::SmallVector<EdgeOp, 2> verify::slotNumbersOf(Operation *call) {
  SmallVector<EdgeOp, 2> edges;
  auto args = call->getAttrOfType<ArrayAttr>("args");
  if (!args || args.empty())
    return edges;
  llvm::StringSet<> wanted;
  for (auto arg : args.getAsRange<StringAttr>())
    for (StringRef name : namesIn(arg))
      wanted.insert(name);
  KernelOp kernel = call->getParentOfType<KernelOp>();
  eachBefore(call, [&](Operation *before) {
    if (StringRef name = resultOf(before); name.empty() || !wanted.erase(name))
      return true;
    if (isa<WaitOp, AcquireOp>(before))
      edges.push_back(kernel.lookup<EdgeOp>(before->getAttrOfType<FlatSymbolRefAttr>("edge")));
    else if (auto local = dyn_cast<LocalOp>(before))
      for (StringRef name : namesIn(local.getInit().value_or("")))
        wanted.insert(name);
    return !wanted.empty();
  });
  return edges;
}

//===----------------------------------------------------------------------===//
// Calls of a role
//===----------------------------------------------------------------------===//

static bool isCall(Operation *op) {
  return isa<ComputeOp, PollOp>(op);
}

/// "attention_tail" of "attention_tail<attention>".
static StringRef functionOf(Operation *call) {
  return call->getAttrOfType<StringAttr>("callee").getValue().split('<').first;
}

// Again with the same arguments on the same places: at best for nothing, at worst something is
// added twice, normed twice or stored over what a reader has.
static LogicalResult verifyOnce(Operation *call) {
  for (Operation *before = call->getPrevNode(); before; before = before->getPrevNode())
    if (before->getName() == call->getName() &&
        before->getAttrDictionary() == call->getAttrDictionary()) {
      auto error = call->emitOpError()
                   << "is made twice in one turn, with the same arguments and places; expected "
                      "once, as a call may add to what it finds";
      error.attachNote(before->getLoc()) << "the first is here";
      return error;
    }
  return success();
}

static bool mentions(Operation *op, StringRef name) {
  auto isNamed = [&](StringRef text) { return llvm::is_contained(namesIn(text), name); };
  bool isFound = false;
  for (NamedAttribute attr : op->getAttrs()) {
    if (attr.getName() == "result" || (isa<LocalOp>(op) && attr.getName() == "name"))
      continue;
    attr.getValue().walk([&](StringAttr text) { isFound |= isNamed(text); });
  }
  return isFound;
}

// A value that no step takes up: whatever was to be done with it is missing.
static LogicalResult verifyUsed(ComputeOp call) {
  StringRef name = declared(call.getResultAttr());
  if (name.empty())
    return success();
  for (Operation *after = call->getNextNode(); after; after = after->getNextNode()) {
    bool isUsed = false;
    after->walk([&](Operation *op) { isUsed |= mentions(op, name); });
    if (isUsed)
      return success();
  }
  return call.emitOpError() << "computes '" << name
                            << "', which no later step names; expected the step that uses it";
}

/// Names in a call's arguments.
static SmallVector<StringRef> argumentsOf(Operation *call) {
  SmallVector<StringRef> names;
  for (auto arg : call->getAttrOfType<ArrayAttr>("args").getAsRange<StringAttr>())
    llvm::append_range(names, namesIn(arg));
  return names;
}

// A variable that calls change: one call gives it what another takes, and the last to name it hands
// that on: to memory, to who names its result, or to a variable that is named once more.
static LogicalResult verifyVariable(LocalOp local) {
  if (local.getType().starts_with("const "))
    return success();
  const StringRef name = resultOf(local);
  SmallVector<Operation *> calls,
      named; // calls: of the role, since a loop's may serve what is behind
  local->getParentOfType<RoleOp>().walk([&](Operation *op) {
    if (isCall(op))
      calls.push_back(op);
  });
  for (Operation *after = local->getNextNode(); after; after = after->getNextNode())
    after->walk([&](Operation *op) {
      if (isCall(op) && mentions(op, name))
        named.push_back(op);
    });
  if (named.size() < 2)
    return local.emitOpError() << "expected a call that fills '" << name
                               << "' and one that uses it, but got " << named.size()
                               << " that names it";
  Operation *last = named.back();
  auto isNamedAgain = [&](StringRef other) {
    return other != name && llvm::any_of(llvm::make_range(llvm::find(calls, last) + 1, calls.end()),
                                         [&](Operation *later) { return mentions(later, other); });
  };
  if (!last->getAttrOfType<ArrayAttr>("writes").empty() || last->hasAttr("result") ||
      llvm::any_of(argumentsOf(last), isNamedAgain))
    return success();
  auto error = last->emitOpError() << "changes '" << name
                                   << "', which no later step names; expected the call that takes "
                                      "it behind this one";
  error.attachNote(local.getLoc()) << "it is declared here";
  return error;
}

namespace {
/// Device functions that work on one state, each on what the one before left there. `isMany`: as
/// often as there are pieces.
struct Link {
  StringRef function;
  bool isMany = false;
  StringRef instead = {}; // another function in its place
  bool is(StringRef name) const {
    return name == function || (!instead.empty() && name == instead);
  }
};
} // namespace

// What is added up in registers shows in no place in memory: a tile's scores
// (codegen/device/attention.cuh, partials.cuh), the best of an SM's logits (epilogue.cuh).
static const Link kAttention[] = {{"attention_prepare"},     {"attention_begin"},
                                  {"attention_piece", true}, {"attention_tail"},
                                  {"attention_finish"},      {"publish_partials"}};
// One row's heads are polled to registers (scores.cuh).
static const Link kHeads[] = {{"poll_heads"}, {"attention_begin"}};
static const Link kBest[] = {{"epilogue_head", true}, {"store_candidates"}};
// A row of a stream and its branch are in registers until they meet (stream_rows.cuh).
static const Link kJoined[] = {
    {"poll_stream"}, {"poll_branch"}, {"join_row", /*isMany=*/false, "deal_row"}};
// So are the outputs of a row's pairs until they are added, and the row until it is stored
// (pair_row.cuh).
static const Link kPairs[] = {{"poll_pair_words"}, {"add_pairs"}};
static const Link kAdded[] = {{"add_pairs", /*isMany=*/true}, {"store_pairs"}};
static const Link kNormed[] = {{"poll_stream"}, {"norm_row", /*isMany=*/false, "deal_norm_row"}};

// A tile's last pieces wait in registers until its products are made, and then their sums go out
// (gemv.cuh).
static const Link kHeld[] = {{"gemv_ahead", true}, {"gemv_held"}, {"store_part"}};
// So do its first pieces, until the column is there (gemv.cuh, nvfp4.cuh).
static const Link kPieces[] = {{"hold_piece", true}, {"multiply_held", true}};
static const Link kDecoded[] = {{"decode_block"}, {"multiply_decoded", true}};
// And the other pieces of the tile add to theirs, ascending.
static const Link kBehindHeld[] = {{"multiply_held", /*isMany=*/false, "multiply_decoded"},
                                   {"gemv_blocks", /*isMany=*/true, "gemv_block"},
                                   {"store_part"}};

bool verify::areOfOneWork(Operation *call, Operation *other) {
  const StringRef one = functionOf(call), two = functionOf(other);
  const ArrayRef<Link> chains[] = {kAttention, kHeads,  kBest, kJoined, kPairs,
                                   kAdded,     kNormed, kHeld, kPieces, kDecoded};
  return one == two || llvm::any_of(chains, [&](ArrayRef<Link> chain) {
           const auto has = [&](StringRef name) {
             return llvm::any_of(chain, [&](const Link &link) { return link.is(name); });
           };
           return has(one) && has(two);
         });
}

ArrayRef<verify::MeetingFunction> verify::meetingFunctions() {
  static const MeetingFunction functions[] = {{"attention_prepare", Meeting::Always},
                                              {"add_pairs", Meeting::Always},
                                              {"attention_finish", Meeting::Writing, /*round=*/2}};
  return functions;
}

// What other steps rely on is in the device function, not in who says so.
static LogicalResult verifyMeeting(ComputeOp call) {
  if (!call.getMeets())
    return success();
  const ArrayAttr args = call.getArgs();
  auto isLater = [&](size_t argument) {
    int64_t round = 0;
    return argument < args.size() &&
           !cast<StringAttr>(args[argument]).getValue().getAsInteger(10, round) && round > 0;
  };
  for (const verify::MeetingFunction &function : verify::meetingFunctions())
    if (function.name == functionOf(call) && function.when == *call.getMeets() &&
        (!function.round || isLater(*function.round)))
      return success();
  return call.emitOpError() << "says that all warps meet in it ("
                            << stringifyMeeting(*call.getMeets()) << "), but in "
                            << functionOf(call)
                            << " they do not; expected a task.refill before it, or a function of "
                               "verify::meetingFunctions";
}

/// Whether a turn itself, not a loop in it, makes a call of the function.
static bool makes(Block &turn, StringRef function) {
  return llvm::any_of(turn,
                      [&](Operation &op) { return isCall(&op) && functionOf(&op) == function; });
}

/// That a turn which has one of the chain's calls has all, in order; the last `round` of them as
/// often as there are rounds.
static LogicalResult verifyChain(Block &turn, ArrayRef<Link> chain, size_t round = 0) {
  SmallVector<std::pair<size_t, Operation *>> found;
  auto add = [&](Operation *op, bool isInLoop) {
    if (isCall(op))
      for (auto [index, link] : llvm::enumerate(chain))
        if (link.is(functionOf(op)) && link.isMany == isInLoop)
          found.push_back({index, op});
  };
  for (Operation &op : turn)
    if (isa<ForOp>(op))
      op.walk([&](Operation *inner) { add(inner, /*isInLoop=*/true); });
    else
      add(&op, /*isInLoop=*/false);
  // One alone is a test's.
  if (found.size() < 2)
    return success();
  auto expectedAt = [&](size_t i) -> std::optional<size_t> {
    if (i < chain.size())
      return i;
    const size_t more = i - chain.size();
    if (round == 0 || (i >= found.size() && more % round == 0))
      return std::nullopt;
    return chain.size() - round + more % round;
  };
  for (size_t i = 0;; ++i) {
    const std::optional<size_t> expected = expectedAt(i);
    if (!expected && i >= found.size())
      return success();
    if (expected && i < found.size() && found[i].first == *expected)
      continue;
    return found[std::min(i, found.size() - 1)].second->emitOpError()
           << "expected " << (expected ? chain[*expected].function : "nothing more") << " as call "
           << i + 1 << " on one state, but got "
           << (i < found.size() ? functionOf(found[i].second) : "no more")
           << "; each works on what the one before left";
  }
}

// Rows behind a partition table are all written because each SM goes through its share of the
// table, however long that is: through a loop that a symbol of the SM bounds, by its index.
static LogicalResult verifyShares(Operation *call) {
  auto writes = call->getAttrOfType<ArrayAttr>("writes");
  KernelOp kernel = call->getParentOfType<KernelOp>();
  for (auto access : writes.getAsRange<AccessAttr>()) {
    if (!access.getTable() ||
        kernel.lookup<TableOp>(access.getTable()).getAxiom() != Axiom::Partition)
      continue;
    SmallVector<ForOp> loops; // by dimension, from 1
    for (auto loop = call->getParentOfType<ForOp>(); loop; loop = loop->getParentOfType<ForOp>())
      loops.insert(loops.begin(), loop);
    AffineExpr argument = access.getAt().getValue().getResult(0);
    for (auto [index, loop] : llvm::enumerate(loops)) {
      if (!argument.isFunctionOfDim(index + 1))
        continue;
      FlatSymbolRefAttr symbol = loop.getTrips().getSymbol();
      if (!symbol || !kernel.lookup<SymbolOp>(symbol).getPerSm())
        return call->emitOpError() << "writes rows that " << access.getTable()
                                   << " shares out, but goes through a share "
                                   << "of fixed length; expected the loop over '" << loop.getIndex()
                                   << "' to take a task.symbol per_sm";
    }
  }
  return success();
}

static bool names(ArrayAttr accesses, FlatSymbolRefAttr buffer) {
  return llvm::any_of(accesses.getAsRange<AccessAttr>(),
                      [&](AccessAttr access) { return access.getBuffer() == buffer; });
}

// Rows that products meet as NVFP4 look, to whoever knows places only, as they did before they were
// quantised where they lie (codegen/device/quantize.cuh): the last that is done to them.
static LogicalResult verifyQuantized(StageOp stage) {
  auto quantizes = stage.getConfig().getAs<BoolAttr>("quantize");
  RoleOp consumer = stage.role(Role::Consumer);
  if (!quantizes || !quantizes.getValue() || !consumer)
    return success();
  WalkResult result = consumer.walk([&](ComputeOp product) {
    if (!product.getRingAttr())
      return WalkResult::advance();
    for (auto rows : product.getReads().getAsRange<AccessAttr>()) {
      ComputeOp last;
      eachBefore(product, [&](Operation *before) {
        auto step = dyn_cast<ComputeOp>(before);
        if (step && names(step.getWrites(), rows.getBuffer()))
          last = step;
        return !last;
      });
      if (last && functionOf(last).starts_with("quantize_") &&
          names(last.getReads(), rows.getBuffer()))
        continue;
      product.emitOpError() << "meets " << rows.getBuffer() << " as "
                            << (last ? functionOf(last) : "no call") << " left it, though stage @"
                            << stage.getSymName()
                            << " quantises its input; expected quantize_rows or quantize_slot, in "
                               "place, as the last that is done to it before";
      return WalkResult::interrupt();
    }
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

static LogicalResult verifyTurn(Block &turn) {
  // What a tile found passes through shared memory in rounds.
  if (failed(verifyChain(turn, kAttention, /*round=*/2)) || failed(verifyChain(turn, kHeads)) ||
      failed(verifyChain(turn, kBest)) || failed(verifyChain(turn, kJoined)) ||
      failed(verifyChain(turn, kNormed)) || failed(verifyChain(turn, kPairs)) ||
      failed(verifyChain(turn, kAdded)) || failed(verifyChain(turn, kPieces)) ||
      failed(verifyChain(turn, kDecoded)) ||
      (makes(turn, "gemv_held") && failed(verifyChain(turn, kHeld, /*round=*/1))) ||
      ((makes(turn, "multiply_held") || makes(turn, "multiply_decoded")) &&
       failed(verifyChain(turn, kBehindHeld))))
    return failure();
  for (Operation &op : turn) {
    if (auto local = dyn_cast<LocalOp>(op); local && failed(verifyVariable(local)))
      return failure();
    if (auto loop = dyn_cast<ForOp>(op)) {
      if (failed(verifyTurn(loop.getBody().front())))
        return failure();
      continue;
    }
    if (!isCall(&op))
      continue;
    if (failed(verifyOnce(&op)) || failed(verifyShares(&op)))
      return failure();
    if (auto call = dyn_cast<ComputeOp>(op);
        call && (failed(verifyUsed(call)) || failed(verifyMeeting(call))))
      return failure();
  }
  return success();
}

//===----------------------------------------------------------------------===//
// What stages say
//===----------------------------------------------------------------------===//

// Buffers in global memory that nobody else looks at here, pages above all: what a stage says that
// it leaves there one of its roles must write, what it says it needs one of the kernel must read.
static LogicalResult verifyFootprint(StageOp stage, const llvm::StringSet<> &read) {
  for (auto access : stage.getReads().getAsRange<AccessAttr>())
    if (!read.contains(access.getBuffer().getValue()))
      return stage.emitOpError() << "expected a step that reads " << access.getBuffer()
                                 << ", as the stage says it does, but the kernel has none";

  for (auto access : stage.getWrites().getAsRange<AccessAttr>()) {
    bool isWritten = false;
    stage.walk([&](Operation *op) {
      if (isCall(op))
        for (auto own : op->getAttrOfType<ArrayAttr>("writes").getAsRange<AccessAttr>())
          isWritten |= own.getBuffer() == access.getBuffer();
    });
    if (!isWritten)
      return stage.emitOpError() << "expected a call that writes " << access.getBuffer()
                                 << ", as the stage says it does, but none of its roles has one";
  }
  return success();
}

// The last launch's layer has none after it.
static LogicalResult verifyLayers(StageOp stage) {
  KernelOp kernel = stage->getParentOfType<KernelOp>();
  if (!kernel.isLooping() || !stage.runsIn(*kernel.getLaunches() - 1))
    return success();
  WalkResult result = stage.walk([&](Operation *op) {
    SmallVector<AccessAttr> reads;
    if (auto copy = dyn_cast<CopyOp>(op))
      reads.push_back(copy.getSource());
    else if (isCall(op))
      llvm::append_range(reads, op->getAttrOfType<ArrayAttr>("reads").getAsRange<AccessAttr>());
    for (AccessAttr access : reads) {
      auto buffer = kernel.lookup<BufferOp>(access.getBuffer());
      auto weights = kernel.lookup<WeightsOp>(access.getBuffer());
      if ((buffer ? buffer.getLayerOffset() : weights ? weights.getLayerOffset() : 0) > 0) {
        op->emitOpError() << "reads " << access.getBuffer()
                          << " of the layer after the launch's own in the last launch too, which "
                             "has none; expected a stage `during` launches before "
                          << *kernel.getLaunches() - 1;
        return WalkResult::interrupt();
      }
    }
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

LogicalResult verify::verifyCalls(KernelOp kernel) {
  llvm::StringSet<> read, written;
  kernel.walk([&](RoleOp role) {
    role.walk([&](Operation *op) {
      if (isCall(op))
        for (auto access : op->getAttrOfType<ArrayAttr>("reads").getAsRange<AccessAttr>())
          read.insert(access.getBuffer().getValue());
      if (isCall(op))
        for (auto access : op->getAttrOfType<ArrayAttr>("writes").getAsRange<AccessAttr>())
          written.insert(access.getBuffer().getValue());
      else if (auto copy = dyn_cast<CopyOp>(op))
        read.insert(copy.getSource().getBuffer().getValue());
    });
  });
  // What one role fills for another is for it to read; not on every SM, some have no share of it.
  for (auto buffer : kernel.getOps<BufferOp>())
    if (buffer.getGuard() && written.contains(buffer.getSymName()) &&
        !read.contains(buffer.getSymName()))
      return buffer.emitOpError() << "is filled for @" << *buffer.getGuard()
                                  << ", but no step reads it; expected one that does";
  // A use's slot is that of its edge; steps printed as one call take the buffer's by its own count.
  for (auto buffer : kernel.getOps<BufferOp>())
    if (auto guard = kernel.lookup<EdgeOp>(buffer.getGuardAttr());
        guard && guard.getSlots() != buffer.getSlots())
      return buffer.emitOpError() << "expected the " << guard.getSlots() << " slots of its guard @"
                                  << guard.getSymName() << ", but got " << buffer.getSlots();
  for (auto stage : kernel.getOps<StageOp>()) {
    if (failed(verifyFootprint(stage, read)) || failed(verifyLayers(stage)) ||
        failed(verifyQuantized(stage)))
      return failure();
    for (auto role : stage.getOps<RoleOp>())
      if (failed(verifyTurn(role.getBody().front())))
        return failure();
  }
  return success();
}
