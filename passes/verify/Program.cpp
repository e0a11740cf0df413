#include "passes/verify/Program.h"

#include "passes/verify/Calls.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace megalith;
using namespace megalith::task;
using namespace megalith::verify;

bool Access::uses(unsigned dim) const {
  return row.uses(dim) || col.uses(dim) ||
         llvm::any_of(widths, [&](const Affine &width) { return width.uses(dim); });
}

llvm::StringRef Program::nameOf(Operation *decl) {
  return cast<SymbolOpInterface>(decl).getName();
}

Operation *Program::userOf(int global, bool isWrite, int launch) const {
  for (const auto &role : code)
    for (const Instr &instr : role)
      for (const Access &access : accessesOf(instr))
        if (!access.isShared && access.decl == global && access.isWrite == isWrite &&
            instr.launch == launch)
          return instr.op;
  return nullptr;
}

Program::Program(KernelOp kernel)
    : kernel(kernel), sms(kernel.getSms()), ranks(kernel.getRanks()),
      isLooping(kernel.isLooping()) {
  declare();
  chooseLaunches();
  for (; launch < static_cast<int>(launches.size()); ++launch) {
    for (StageOp stage : kernel.getOps<StageOp>())
      if (stage.runsIn(launches[launch]))
        addStage(stage);
    for (int role = 0; role < kRoles; ++role)
      launchEnds[role].push_back(code[role].size());
  }
}

void Program::chooseLaunches() {
  constexpr int kSame = 3;
  std::vector<bool> before;
  int same = 0;
  for (int64_t number = 0; number < kernel.getLaunches().value_or(1); ++number) {
    std::vector<bool> runs;
    for (StageOp stage : kernel.getOps<StageOp>())
      runs.push_back(stage.runsIn(number));
    same = runs == before ? same + 1 : 1;
    before = std::move(runs);
    if (same <= kSame)
      launches.push_back(number);
  }
}

void Program::addStage(StageOp stage) {
  for (int role = 0; role < kRoles; ++role) {
    RoleOp region = stage.role(static_cast<Role>(role));
    if (!region)
      continue;
    const size_t begin = code[role].size();
    Instr enter{.kind = Instr::Stage, .launch = launch, .op = stage};
    enter.sms = stage.getSms().value_or(sms);
    code[role].push_back(enter);
    addBlock(region.getBody().front(), role, /*depth=*/1, stage);
    code[role][begin].end = code[role].size();
    code[role][begin].varies =
        enter.sms < sms || llvm::any_of(llvm::drop_begin(code[role], begin),
                                        [](const Instr &instr) { return instr.varies; });
  }
}

void Program::declare() {
  SmallVector<TableOp> tables;
  for (Operation &op : kernel.getBody().front()) {
    int index =
        llvm::TypeSwitch<Operation *, int>(&op)
            .Case([&](SymbolOp op) {
              symbols.emplace_back(op);
              return int(symbols.size()) - 1;
            })
            .Case([&](TableOp op) {
              tables.push_back(op);
              return int(tables.size()) - 1;
            })
            .Case([&](EdgeOp op) {
              Edge edge{op, static_cast<int>(op.getFrom()), {}, op.getSlots(), op.isGlobal()};
              for (auto to : op.getTo().getAsRange<RoleAttr>())
                edge.to.push_back(static_cast<int>(to.getValue()));
              edges.push_back(edge);
              return int(edges.size()) - 1;
            })
            .Case([&](RingOp op) {
              rings.push_back({op, -1, op.getSlots()});
              return int(rings.size()) - 1;
            })
            .Case([&](BufferOp op) {
              if (op.getSpace() == Space::Smem) {
                shared.push_back({op, op.rows(), op.cols(), op.getSlots()});
                return int(shared.size()) - 1;
              }
              globals.push_back({Global::Buffer, op, op.rows(), op.cols(), op.getMutability()});
              return int(globals.size()) - 1;
            })
            .Case([&](ExchangeOp op) {
              globals.push_back({.kind = Global::Exchange,
                                 .op = op,
                                 .rows = op.rows(),
                                 .cols = op.cols(),
                                 .isOfRanks = op.getPeers(),
                                 .isNumbers = op.getWord() == WordKind::Number,
                                 .share = op.shareCols()});
              return int(globals.size()) - 1;
            })
            .Case([&](WeightsOp op) {
              globals.push_back({Global::Weights, op, op.strips(), op.blocks()});
              return int(globals.size()) - 1;
            })
            .Default([](Operation *) { return -1; });
    if (index >= 0)
      names[cast<SymbolOpInterface>(op).getNameAttr()] = {&op, index};
  }
  for (Ring &ring : rings)
    ring.full = indexOf(ring.op.getFullAttr());
  for (Shared &buffer : shared) {
    buffer.guard = indexOf(buffer.op.getGuardAttr());
    if (!buffer.op.getOffset())
      continue;
    for (auto [index, other] : llvm::enumerate(shared))
      if (&other != &buffer && other.op.getOffset() &&
          *other.op.getOffset() < *buffer.op.getOffset() + buffer.op.byteSize() &&
          *buffer.op.getOffset() < *other.op.getOffset() + other.op.byteSize())
        buffer.overlapping.push_back(index);
  }
}

int Program::indexOf(FlatSymbolRefAttr name) const {
  return name ? names.lookup(name.getAttr()).second : -1;
}

void Program::addBlock(Block &block, int role, unsigned depth, Operation *stage) {
  maxDepth = std::max(maxDepth, depth);
  for (Operation &op : block)
    if (auto loop = dyn_cast<ForOp>(op))
      addLoop(loop, role, depth, stage);
    else if (!isa<LocalOp>(op))
      addStep(op, role, depth, stage);
}

void Program::addLoop(ForOp op, int role, unsigned depth, Operation *stage) {
  std::vector<Instr> &body = code[role];
  const size_t begin = body.size();
  Loop loop{.op = op, .dim = depth, .launch = launch};
  TripsAttr trips = op.getTrips();
  if (FlatSymbolRefAttr symbol = trips.getSymbol())
    loop.symbol = indexOf(symbol),
    loop.after = indexOf(kernel.lookup<SymbolOp>(symbol).getAfterAttr());
  else
    loop.trips = affinesOf(trips.getMap().getValue(), depth);
  Instr enter{.kind = Instr::LoopBegin, .launch = launch, .op = op};
  body.push_back(enter);
  addBlock(op.getBody().front(), role, depth + 1, stage);
  if (body.size() == begin + 1) { // without steps inside, trips count for nothing but time
    body.pop_back();
    return;
  }
  loops.push_back(loop);
  // Loops inside came first.
  Instr leave{.kind = Instr::LoopEnd, .launch = launch, .op = op};
  body[begin].loop = leave.loop = loops.size() - 1;
  leave.end = begin;
  body.push_back(leave);
  body[begin].end = body.size();
  body[begin].varies =
      loop.symbol >= 0 ||
      llvm::any_of(loop.trips, [](const Affine &trips) { return trips.uses(0); }) ||
      llvm::any_of(llvm::drop_begin(body, begin + 1), [](const Instr &i) { return i.varies; });
}

int Program::addAccess(AccessAttr attr, bool isWrite, unsigned depth) {
  auto [op, decl] = names.lookup(attr.getBuffer().getAttr());
  auto at = affinesOf(attr.getAt().getValue(), depth);
  auto buffer = dyn_cast<BufferOp>(op);
  Access access{.attr = attr,
                .isWrite = isWrite,
                .isShared = buffer && buffer.getSpace() == Space::Smem,
                .decl = decl,
                .height = attr.getRows(),
                .row = at[at.size() - 2],
                .col = at.back(),
                .widths = affinesOf(attr.getCols().getValue(), depth)};
  if (attr.getTable()) {
    access.argument = at.front();
    auto [table, index] = names.lookup(attr.getTable().getAttr());
    access.table = index;
    access.axiom = cast<TableOp>(table).getAxiom();
  }
  accesses.push_back(access);
  return accesses.size() - 1;
}

void Program::addStep(Operation &op, int role, unsigned depth, Operation *stage) {
  Instr instr{.kind = Instr::LaunchWait, .launch = launch, .depth = depth, .op = &op};
  SmallVector<std::pair<AccessAttr, bool>> touched;
  auto addAll = [&](ArrayAttr attrs, bool isWrite) {
    for (auto access : attrs.getAsRange<AccessAttr>())
      touched.push_back({access, isWrite});
  };
  auto onEdge = [&](Instr::Kind kind, FlatSymbolRefAttr edge) {
    instr.kind = kind;
    instr.edge = indexOf(edge);
  };
  llvm::TypeSwitch<Operation *>(&op)
      .Case([&](WaitOp op) { onEdge(Instr::Wait, op.getEdgeAttr()); })
      .Case([&](PeekOp op) { onEdge(Instr::Peek, op.getEdgeAttr()); })
      .Case([&](AcquireOp op) { onEdge(Instr::Acquire, op.getEdgeAttr()); })
      .Case([&](SignalOp op) { onEdge(Instr::Signal, op.getEdgeAttr()); })
      .Case([&](ReleaseOp op) { onEdge(Instr::Release, op.getEdgeAttr()); })
      .Case([&](CopyOp op) {
        onEdge(Instr::Copy, op.getEdgeAttr());
        instr.ring = indexOf(op.getRingAttr());
        touched.push_back({op.getSource(), false});
      })
      .Case([&](RefillOp op) {
        instr.kind = Instr::Refill;
        instr.refilled = indexOf(op.getBufferAttr());
      })
      .Case([&](PaceOp op) { onEdge(Instr::Pace, op.getEdgeAttr()); })
      .Case([&](PollOp op) {
        onEdge(Instr::Poll, op.getEdgeAttr());
        instr.joins = op.getJoinsAttr() ? indexOf(op.getJoinsAttr()) : -1;
        addAll(op.getReads(), false);
        addAll(op.getWrites(), true);
      })
      .Case([&](ComputeOp op) {
        instr.kind = Instr::Compute;
        instr.meets = op.getMeets();
        instr.ring = indexOf(op.getRingAttr());
        addAll(op.getReads(), false);
        addAll(op.getWrites(), true);
      })
      .Case([&](RearmOp op) {
        instr.kind = Instr::Rearm;
        instr.exchange = indexOf(op.getExchangeAttr());
      })
      .Case([&](LaunchWaitOp op) { onEdge(Instr::LaunchWait, op.getEdgeAttr()); })
      .Case([&](LaunchDoneOp op) { onEdge(Instr::LaunchDone, op.getEdgeAttr()); })
      .Case([&](LaunchDependentsOp) { instr.kind = Instr::LaunchDependents; });

  // The slices that pieces of weights are clipped to come first: an op's accesses stay together.
  SmallVector<SmallVector<int, 1>> clips;
  for (auto [attr, isWrite] : touched) {
    clips.emplace_back();
    if (!isa<WeightsOp>(names.lookup(attr.getBuffer().getAttr()).first))
      continue;
    for (auto read : cast<StageOp>(stage).getReads().getAsRange<AccessAttr>())
      if (read.getBuffer() == attr.getBuffer()) {
        auto [it, isNew] = slices.try_emplace({stage, read}, -1);
        if (isNew)
          it->second = addAccess(read, false, /*depth=*/1);
        clips.back().push_back(it->second);
      }
  }
  instr.accesses = accesses.size();
  instr.count = touched.size();
  for (auto [index, entry] : llvm::enumerate(touched)) {
    Access &access = accesses[addAccess(entry.first, entry.second, depth)];
    access.slices = clips[index];
    if (access.isShared) {
      instr.varies |= access.uses(0);
      continue;
    }
    const Global &global = globals[access.decl];
    const bool isExchange = global.kind == Global::Exchange;
    auto exchange = dyn_cast<ExchangeOp>(global.op);
    const bool isPolled = instr.kind == Instr::Poll && !access.isWrite && exchange;
    instr.polls |= isPolled && isOwn(access, instr) && exchange.isSelfValidating();
    instr.isStale |= isPolled && isLooping && exchange.isSelfValidating() && !isOwn(access, instr);
    instr.receives |= isPolled && access.isCurrent() && !exchange.isSelfValidating();
    instr.publishes |= access.isWrite && isExchange;
    instr.stores |= access.isWrite && global.kind == Global::Buffer;
  }
  for (EdgeOp edge : slotNumbersOf(&op))
    instr.numbers.push_back(indexOf(FlatSymbolRefAttr::get(edge.getSymNameAttr())));
  code[role].push_back(instr);
}
