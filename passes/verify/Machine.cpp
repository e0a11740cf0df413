#include "passes/verify/Machine.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace megalith;
using namespace megalith::task;
using namespace megalith::verify;

static int indexOf(Role role) {
  return static_cast<int>(role);
}

Declarations::Declarations(KernelOp kernel) {
  SmallVector<BufferOp> planned;
  for (Operation &op : kernel.getBody().front()) {
    if (auto symbol = dyn_cast<SymbolOpInterface>(op))
      byName[symbol.getNameAttr()] = &op;
    if (auto buffer = dyn_cast<BufferOp>(op);
        buffer && buffer.getSpace() == Space::Smem && buffer.getOffset())
      planned.push_back(buffer);
  }
  for (BufferOp buffer : planned)
    for (BufferOp other : planned)
      if (other != buffer && *other.getOffset() < *buffer.getOffset() + buffer.byteSize() &&
          *buffer.getOffset() < *other.getOffset() + other.byteSize())
        overlaps[buffer].push_back(other);
}

Machine::Machine(KernelOp kernel, const Declarations &names, const Valuation &valuation)
    : kernel(kernel), names(names), sms(kernel.getSms()), dependentsLaunched(kernel.getSms()) {
  for (int64_t sm = 0; sm < kernel.getSms(); ++sm)
    for (int role = 0; role < kRoles; ++role) {
      Thread &thread = threads.emplace_back();
      thread.sm = sm;
      thread.role = static_cast<Role>(role);
      thread.steps = unroll(kernel, thread.role, sm, valuation);
      if (thread.steps.size() >= kMaxSteps) {
        fault(kernel, sm) << "has more than " << kMaxSteps << " steps in the "
                          << stringifyRole(thread.role) << "'s loops, too many to prove";
        return;
      }
      for (const Step &step : thread.steps)
        if (auto compute = dyn_cast<ComputeOp>(step.op))
          for (auto access : compute.getWrites().getAsRange<AccessAttr>())
            if (auto exchange = names.lookup<ExchangeOp>(access.getBuffer()))
              ++publishersLeft[exchange];
    }
}

InFlightDiagnostic Machine::fault(Operation *op, int64_t sm) {
  hasFailed = true;
  InFlightDiagnostic diagnostic = op->emitOpError();
  // One report an op: 132 SMs repeat the same fault.
  if (reports[op]++)
    diagnostic.abandon();
  else
    diagnostic << "on SM " << sm << ": ";
  return diagnostic;
}

LogicalResult Machine::run() {
  if (hasFailed)
    return failure();
  bool moved = true;
  while (moved) {
    moved = false;
    for (Thread &thread : threads)
      while (!thread.done() && step(thread)) {
        ++thread.next;
        moved = true;
      }
  }
  if (llvm::any_of(threads, [](const Thread &thread) { return !thread.done(); }))
    reportBlocked();
  else
    checkEnds();
  return failure(hasFailed);
}

bool Machine::step(Thread &thread) {
  const Step &now = thread.steps[thread.next];
  auto edgeNamed = [&](FlatSymbolRefAttr name) { return names.lookup<EdgeOp>(name); };
  bool passes =
      TypeSwitch<Operation *, bool>(now.op)
          .Case([&](WaitOp op) { return waitFor(thread, edgeNamed(op.getEdgeAttr()), 0); })
          .Case([&](AcquireOp op) {
            EdgeOp edge = edgeNamed(op.getEdgeAttr());
            return waitFor(thread, edge, edge.getSlots());
          })
          .Case([&](PollOp op) { return poll(thread, op, now); })
          .Default([](Operation *) { return true; });
  if (!passes)
    return false;
  ++thread.clock[indexOf(thread.role)];
  TypeSwitch<Operation *>(now.op)
      .Case([&](SignalOp op) { signal(thread, edgeNamed(op.getEdgeAttr()), op); })
      .Case([&](ReleaseOp op) { signal(thread, edgeNamed(op.getEdgeAttr()), op); })
      .Case([&](CopyOp op) {
        access(thread, now, op.getSource(), /*isWrite=*/false);
        accessRing(thread, now, names.lookup<RingOp>(op.getRingAttr()), /*isWrite=*/true);
        signal(thread, edgeNamed(op.getEdgeAttr()), op);
      })
      .Case([&](PollOp op) {
        for (auto write : op.getWrites().getAsRange<AccessAttr>())
          access(thread, now, write, /*isWrite=*/true);
      })
      .Case([&](ComputeOp op) {
        for (auto read : op.getReads().getAsRange<AccessAttr>())
          access(thread, now, read, /*isWrite=*/false);
        if (op.getRingAttr())
          accessRing(thread, now, names.lookup<RingOp>(op.getRingAttr()), /*isWrite=*/false);
        for (auto write : op.getWrites().getAsRange<AccessAttr>())
          access(thread, now, write, /*isWrite=*/true);
      })
      .Case([&](RearmOp op) {
        requireLaunchWait(thread, op, "re-arming a set");
        auto &times = rearmed[names.lookup<ExchangeOp>(op.getExchangeAttr())];
        times.resize(kernel.getSms());
        ++times[thread.sm];
      })
      .Case([&](LaunchWaitOp) { thread.hasLaunchWaited = true; })
      .Case([&](LaunchDependentsOp op) {
        requireLaunchWait(thread, op, "letting the next launch start");
        ++dependentsLaunched[thread.sm];
      });
  return true;
}

//===----------------------------------------------------------------------===//
// Edges
//===----------------------------------------------------------------------===//

// Use n passes once signalled; a credit edge's first `slotsFree` uses pass at once.
bool Machine::waitFor(Thread &thread, EdgeOp edge, int64_t slotsFree) {
  EdgeState &state = sms[thread.sm].edges[edge];
  int role = indexOf(thread.role);
  int64_t use = state.waits[role] - slotsFree;
  if (use >= state.signals)
    return false;
  if (use >= 0)
    for (int r = 0; r < kRoles; ++r)
      thread.clock[r] = std::max(thread.clock[r], state.completed[use][r]);
  ++state.waits[role];
  state.waitClock[role].push_back(thread.clock[role] + 1);
  return true;
}

// A slot's barrier has two phases: use u may be signalled only when every waiting role is known to
// have passed use u - slots, else a waiter could miss a phase and hang.
void Machine::signal(Thread &thread, EdgeOp edge, Operation *op) {
  EdgeState &state = sms[thread.sm].edges[edge];
  int64_t before = state.signals - edge.getSlots();
  if (before >= 0)
    for (auto to : edge.getTo().getAsRange<RoleAttr>()) {
      int role = indexOf(to.getValue());
      auto &clocks = state.waitClock[role];
      if (before >= static_cast<int64_t>(clocks.size()) || clocks[before] > thread.clock[role]) {
        fault(op, thread.sm) << "signals use " << state.signals << " of edge @" << edge.getSymName()
                             << ", which has " << edge.getSlots() << " slots, while the "
                             << stringifyRole(to.getValue()) << " may still wait for use " << before
                             << "; a credit edge from it must be acquired before";
        break;
      }
    }
  ++state.signals;
  state.completed.push_back(thread.clock);
}

void Machine::requireLaunchWait(Thread &thread, Operation *op, StringRef what) {
  if (!thread.hasLaunchWaited)
    fault(op, thread.sm) << what << " needs the previous launch to be complete: the "
                         << stringifyRole(thread.role) << " has no task.launch_wait before this op";
}

//===----------------------------------------------------------------------===//
// Exchanges
//===----------------------------------------------------------------------===//

Coverage &Machine::coverage(Operation *decl, int64_t rows, int64_t cols) {
  return written.insert({decl, Coverage(rows, cols)}).first->second;
}

Coverage::Key Machine::keyOf(AccessAttr access, const Step &step, int64_t sm) {
  if (!access.getTable())
    return {};
  auto table = names.lookup<TableOp>(access.getTable());
  int64_t argument = evalAll(access.getAt().getValue(), step.dims).front();
  int64_t identity = reinterpret_cast<intptr_t>(table.getOperation());
  if (table.getAxiom() == Axiom::Uniform)
    return {identity, argument};
  return {identity, argument, sm};
}

bool Machine::poll(Thread &thread, PollOp op, const Step &step) {
  for (auto access : op.getReads().getAsRange<AccessAttr>()) {
    auto exchange = names.lookup<ExchangeOp>(access.getBuffer());
    if (!checkBounds(thread, step, access, rectOf(access, step.dims), exchange.rows(),
                     exchange.cols()))
      return true; // its words never come
  }
  for (auto access : op.getReads().getAsRange<AccessAttr>()) {
    auto exchange = names.lookup<ExchangeOp>(access.getBuffer());
    if (access.getSet() == Set::Previous)
      continue; // written by the launch before this one
    Rect rect = rectOf(access, step.dims);
    Coverage &words = coverage(exchange, exchange.rows(), exchange.cols());
    bool isDirect =
        !access.getTable() || names.lookup<TableOp>(access.getTable()).getAxiom() == Axiom::Uniform;
    // Rows behind a partition table are written by whoever its axiom says: wait for all publishers.
    if (isDirect ? !words.contains(keyOf(access, step, thread.sm), rect)
                 : publishersLeft.lookup(exchange) > 0)
      return false;
    polled[exchange] = op;
  }
  for (auto access : op.getReads().getAsRange<AccessAttr>())
    if (access.getSet() == Set::Current)
      requireLaunchWait(thread, op, "polling a set that this launch writes");
  return true;
}

void Machine::publish(Thread &thread, const Step &step, ExchangeOp exchange, AccessAttr access,
                      const Rect &rect) {
  requireLaunchWait(thread, step.op, "publishing words");
  --publishersLeft[exchange];
  if (!coverage(exchange, exchange.rows(), exchange.cols())
           .mark(keyOf(access, step, thread.sm), rect))
    fault(step.op, thread.sm) << "publishes words of @" << exchange.getSymName() << ' '
                              << describe(rect) << " that were published before in this launch";
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

bool Machine::checkBounds(const Thread &thread, const Step &step, AccessAttr access,
                          const Rect &rect, int64_t rows, int64_t cols) {
  // Subtracted, since places may be anything.
  if (rect.row >= 0 && rect.col >= 0 && rect.row <= rows - rect.rows &&
      rect.col <= cols - rect.cols)
    return true;
  fault(step.op, thread.sm) << "touches " << access.getBuffer() << ' ' << describe(rect)
                            << ", outside its " << rows << " x " << cols;
  return false;
}

// A piece is at most eight strips: the last of a slice is what the slice, the stage's own read of
// these weights at tile = SM, has left.
static Rect clipToSlice(const Step &step, AccessAttr piece, Rect rect) {
  auto stage = step.op->getParentOfType<StageOp>();
  for (auto read : stage.getReads().getAsRange<AccessAttr>())
    if (read.getBuffer() == piece.getBuffer()) {
      Rect slice = rectOf(read, {step.dims.front()});
      rect.rows = std::min(rect.row + rect.rows, slice.row + slice.rows) - rect.row;
    }
  return rect;
}

void Machine::access(Thread &thread, const Step &step, AccessAttr access, bool isWrite) {
  Rect rect = rectOf(access, step.dims);
  if (rect.empty())
    return;
  Operation *decl = names.find(access.getBuffer());
  if (auto exchange = dyn_cast<ExchangeOp>(decl)) {
    if (isWrite && checkBounds(thread, step, access, rect, exchange.rows(), exchange.cols()))
      publish(thread, step, exchange, access, rect);
    return;
  }
  if (auto weights = dyn_cast<WeightsOp>(decl)) {
    rect = clipToSlice(step, access, rect);
    rect.rows = std::min(rect.rows, weights.strips() - rect.row); // the last SM's slice is ragged
    if (checkBounds(thread, step, access, rect, weights.strips(), weights.blocks()) &&
        !coverage(weights, weights.strips(), weights.blocks())
             .mark(keyOf(access, step, thread.sm), rect))
      fault(step.op, thread.sm) << "streams blocks of @" << weights.getSymName() << ' '
                                << describe(rect) << " that were streamed before in this launch";
    return;
  }
  auto buffer = cast<BufferOp>(decl);
  if (!checkBounds(thread, step, access, rect, buffer.rows(), buffer.cols()))
    return;
  if (buffer.getSpace() == Space::Smem)
    return accessSmem(thread, step, buffer, rect, isWrite);
  if (!isWrite)
    return; // immutable, or pages below start
  if (buffer.getMutability() == Mutability::Immutable)
    fault(step.op, thread.sm) << "writes the immutable buffer @" << buffer.getSymName();
  requireLaunchWait(thread, step.op, "storing to global memory");
  if (buffer.getMutability() == Mutability::Written &&
      !coverage(buffer, buffer.rows(), buffer.cols()).mark(keyOf(access, step, thread.sm), rect))
    fault(step.op, thread.sm) << "writes @" << buffer.getSymName() << ' ' << describe(rect)
                              << " a second time in this launch";
}

// Both accesses touch the same bytes and one writes: the earlier must be known to this role.
void Machine::order(Thread &thread, const Step &step, Operation *memory, int64_t slot,
                    const Record &record) {
  auto &records = sms[thread.sm].memory[memory].slots[slot];
  for (const Record &before : records) {
    int role = indexOf(before.role);
    if (before.role == record.role || !(before.isWrite || record.isWrite) ||
        !before.rect.overlaps(record.rect) || before.clock <= thread.clock[role])
      continue;
    auto name = cast<SymbolOpInterface>(memory).getName();
    fault(step.op, thread.sm)
            .append(record.isWrite ? "the write of @" : "the read of @", name, " ",
                    describe(record.rect), " by the ", stringifyRole(record.role),
                    " is not ordered after the ", before.isWrite ? "write" : "read", " by the ",
                    stringifyRole(before.role), "; expected an edge from the ",
                    stringifyRole(before.role), " to the ", stringifyRole(record.role),
                    " between them")
            .attachNote(before.op->getLoc())
        << "the earlier access is here";
    break;
  }
}

void Machine::accessSmem(Thread &thread, const Step &step, BufferOp buffer, const Rect &rect,
                         bool isWrite) {
  int role = indexOf(thread.role);
  int64_t use = 0;
  if (auto guard = names.lookup<EdgeOp>(buffer.getGuardAttr())) {
    EdgeState &edge = sms[thread.sm].edges[guard];
    bool isReader = llvm::any_of(guard.getTo().getAsRange<RoleAttr>(),
                                 [&](RoleAttr to) { return to.getValue() == thread.role; });
    if (!isReader && thread.role != guard.getFrom()) {
      fault(step.op, thread.sm) << "touches @" << buffer.getSymName() << ", but its guard @"
                                << guard.getSymName() << " does not join the "
                                << stringifyRole(thread.role);
      return;
    }
    use = isReader ? edge.waits[role] - 1 : edge.signals;
    if (use < 0) {
      fault(step.op, thread.sm) << "touches @" << buffer.getSymName() << " before any wait for @"
                                << guard.getSymName() << "; expected a task.wait before it";
      return;
    }
  }
  int64_t slot = use % buffer.getSlots();
  Record record{thread.role, thread.clock[role], rect, isWrite, step.op};
  order(thread, step, buffer, slot, record);
  // Buffers planned over the same bytes: any two accesses conflict.
  for (BufferOp other : names.overlapping(buffer)) {
    Record all{thread.role, record.clock, {0, other.rows(), 0, other.cols()}, true, step.op};
    for (int64_t s = 0; s < other.getSlots(); ++s)
      order(thread, step, other, s, all);
  }

  Memory &memory = sms[thread.sm].memory[buffer];
  auto [filling, isNew] = memory.fillings.try_emplace(use, buffer.rows(), buffer.cols());
  if (isWrite)
    filling->second.mark({}, rect);
  else if (!filling->second.contains({}, rect))
    fault(step.op, thread.sm) << "reads @" << buffer.getSymName() << ' ' << describe(rect)
                              << ", not all of which filling " << use
                              << " wrote; expected a write of it before";
  while (memory.fillings.size() > static_cast<size_t>(buffer.getSlots()) + 2)
    memory.fillings.erase(memory.fillings.begin());

  auto &records = memory.slots[slot];
  llvm::erase_if(records, [&](const Record &before) {
    bool isKnown = before.clock <= thread.clock[indexOf(before.role)];
    bool isReplaced = isWrite || (!before.isWrite && before.role == thread.role);
    return isKnown && isReplaced && rect.contains(before.rect);
  });
  records.push_back(record);
}

void Machine::accessRing(Thread &thread, const Step &step, RingOp ring, bool isWrite) {
  EdgeState &full = sms[thread.sm].edges[names.lookup<EdgeOp>(ring.getFullAttr())];
  int role = indexOf(thread.role);
  int64_t use = isWrite ? full.signals : full.waits[role] - 1;
  if (use < 0) {
    fault(step.op, thread.sm) << "reads the ring before any wait for " << ring.getFullAttr();
    return;
  }
  Record record{thread.role, thread.clock[role], {0, 1, 0, 1}, isWrite, step.op};
  order(thread, step, ring, use % ring.getSlots(), record);
  auto &records = sms[thread.sm].memory[ring].slots[use % ring.getSlots()];
  if (isWrite)
    records.clear();
  records.push_back(record);
  if (!isWrite) {
    int64_t &read = sms[thread.sm].ringReads[ring];
    if (use > read)
      fault(step.op, thread.sm) << "reads piece " << use << " of the ring, but piece " << read
                                << " was never read: a streamed block of this role is lost";
    read = std::max(read, use + 1);
  }
}

//===----------------------------------------------------------------------===//
// The end of a run
//===----------------------------------------------------------------------===//

// Most blocked roles only wait for other blocked roles. Those that wait for a role that is done are
// the cause; else the members of a circle on one SM are; else (a circle over several SMs) all are
// named.
void Machine::reportBlocked() {
  auto blocker =
      [&](Thread &thread) -> Thread & { // whom it waits for; polls wait on any SM's epilogue
    auto name = thread.steps[thread.next].op->getAttrOfType<FlatSymbolRefAttr>("edge");
    return threads[thread.sm * kRoles + indexOf(names.lookup<EdgeOp>(name).getFrom())];
  };
  auto isOnCircle = [&](Thread &thread) {
    Thread *at = &thread;
    for (int i = 0; i < kRoles && !at->done(); ++i)
      if ((at = &blocker(*at)) == &thread)
        return true;
    return false;
  };
  enum { Causes, Circles, All };
  bool isReported = false;
  for (int level : {Causes, Circles, All}) {
    if (isReported)
      return;
    for (Thread &thread : threads) {
      if (thread.done())
        continue;
      const Step &step = thread.steps[thread.next];
      auto name = step.op->getAttrOfType<FlatSymbolRefAttr>("edge");
      auto edge = names.lookup<EdgeOp>(name);
      bool isPoll = isa<PollOp>(step.op);
      auto isStuckPublisher = [&](Thread &other) {
        return other.role == edge.getFrom() && !other.done();
      };
      bool isCause = isPoll ? llvm::none_of(threads, isStuckPublisher) : blocker(thread).done();
      if ((level == Causes && !isCause) || (level == Circles && !isOnCircle(thread)))
        continue;
      isReported = true;
      if (isPoll) {
        fault(step.op, thread.sm) << "deadlock: the " << stringifyRole(thread.role)
                                  << " polls words of " << name
                                  << " that nothing publishes in this launch";
        continue;
      }
      EdgeState &state = sms[thread.sm].edges[edge];
      fault(step.op, thread.sm) << "deadlock: the " << stringifyRole(thread.role)
                                << " waits for use " << state.waits[indexOf(thread.role)]
                                << " of edge " << name << ", which the "
                                << stringifyRole(edge.getFrom()) << " signals " << state.signals
                                << " times";
    }
  }
}

void Machine::checkUses(int64_t sm) {
  for (EdgeOp edge : kernel.edges()) {
    if (edge.getKind() == EdgeKind::Words)
      continue;
    EdgeState &state = sms[sm].edges[edge];
    for (auto to : edge.getTo().getAsRange<RoleAttr>()) {
      int64_t waits = state.waits[indexOf(to.getValue())];
      if (waits != state.signals)
        fault(edge, sm) << "is signalled " << state.signals << " times by the "
                        << stringifyRole(edge.getFrom()) << " but waited for " << waits
                        << " times by the " << stringifyRole(to.getValue()) << "; expected as many";
    }
  }
  for (auto ring : kernel.getOps<RingOp>()) {
    int64_t copies = sms[sm].edges[names.lookup<EdgeOp>(ring.getFullAttr())].signals;
    if (int64_t reads = sms[sm].ringReads[ring]; reads != copies)
      fault(ring, sm) << "receives " << copies << " pieces, of which only the first " << reads
                      << " are read";
  }
}

void Machine::checkEnds() {
  for (int64_t sm = 0; sm < kernel.getSms(); ++sm)
    checkUses(sm);
  for (auto &[decl, words] : written) {
    if (auto exchange = dyn_cast<ExchangeOp>(decl)) {
      if (!words.isComplete())
        fault(exchange, 0) << "has words that no role publishes; expected each exactly once";
      if (!words.isUntouched() && !exchange.isCrossing() && !polled.lookup(exchange))
        fault(exchange, 0) << "is published but never polled";
    } else if (auto weights = dyn_cast<WeightsOp>(decl)) {
      if (!words.isComplete())
        fault(weights, 0) << "has blocks that no SM streams; expected each exactly once";
    }
  }
  for (auto buffer : kernel.getOps<BufferOp>())
    if (buffer.getMutability() == Mutability::Written) {
      auto it = written.find(buffer);
      if (it == written.end() || it->second.isUntouched() || !it->second.isComplete())
        fault(buffer, 0) << "is not written everywhere; expected each element exactly once";
    }
  for (auto exchange : kernel.getOps<ExchangeOp>()) {
    if (exchange.getWord() == WordKind::Epoch)
      continue;
    auto &times = rearmed[exchange];
    times.resize(kernel.getSms());
    for (int64_t sm = 0; sm < kernel.getSms(); ++sm)
      if (times[sm] != 1)
        fault(exchange, sm) << "is re-armed " << times[sm]
                            << " times; expected once, by every SM in every launch";
  }
  for (int64_t sm = 0; sm < kernel.getSms(); ++sm)
    if (dependentsLaunched[sm] != 1)
      fault(kernel, sm) << "lets the next launch start " << dependentsLaunched[sm]
                        << " times; expected one task.launch_dependents";
}
