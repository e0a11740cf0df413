// Shared memory of one SM: what is read was written, and nothing races.
#include "passes/verify/Calls.h"
#include "passes/verify/Local.h"
#include "passes/verify/MemoryOrder.h"

using namespace mlir;
using namespace megalith;
using namespace megalith::task;
using namespace megalith::verify;

// That it is over: for a bulk copy, that it has landed, which only a wait for its edge tells.
bool Local::knows(const Thread &thread, const Record &before) const {
  if (!before.isCopy())
    return before.role == thread.role || before.clock <= thread.clock[before.role];
  return llvm::any_of(program.edges[before.edge].to, [&](int role) {
    const auto &waits = edges[before.edge].waitClock[role];
    return before.landing < static_cast<int64_t>(waits.size()) &&
           waits[before.landing] <= thread.clock[role];
  });
}

// Whether no warp of the thread's own role can still be at what came before: consumers are several.
bool Local::hasMet(const Thread &thread, const Record &before) const {
  return before.role != thread.role || thread.role != static_cast<int>(Role::Consumer) ||
         before.clock <= thread.met;
}

// Both touch the same bytes and one writes: what docs/memory-order.md asks for.
bool Local::isOrdered(const Thread &thread, const Record &before, const Record &record) const {
  using namespace order;
  const Order needed = order::required(!before.isWrite  ? Hazard::WriteAfterRead
                                       : record.isWrite ? Hazard::WriteAfterWrite
                                                        : Hazard::ReadAfterWrite,
                                       before.isCopy() ? Proxy::Async : Proxy::Generic,
                                       record.isCopy() ? Proxy::Async : Proxy::Generic, Reach::Cta);
  return (needed == Order::Barrier || needed == Order::Bytes) && knows(thread, before);
}

void Local::order(Thread &thread, const Records &records, Operation *memory, const Record &record) {
  auto verb = [](const Record &record) {
    return record.isCopy() ? "bulk copy into" : record.isWrite ? "write of" : "read of";
  };
  for (const Record &before : records) {
    if (!(before.isWrite || record.isWrite) || !before.rect.overlaps(record.rect) ||
        isOrdered(thread, before, record))
      continue;
    const std::string earlier = nameOfTask(before.op), later = nameOfTask(record.op);
    std::string text;
    llvm::raw_string_ostream out(text);
    out << "the " << verb(record) << " @" << Program::nameOf(memory) << ' ' << describe(record.rect)
        << " by the " << later << " is not ordered after the " << verb(before) << " it by the "
        << earlier;
    if (before.isCopy())
      out << "; expected a wait for @" << Program::nameOf(program.edges[before.edge].op)
          << ", which the copy's bytes complete, between them";
    else if (record.isCopy() && before.isWrite)
      out << "; expected another buffer, since only fence.proxy.async orders stores before a bulk "
             "copy, and no device function has one";
    else
      out << "; expected an edge from the " << nameOfRole(before.role) << " to the "
          << nameOfRole(record.role) << " between them";
    faults.at(record.op, sm).append(text).attachNote(before.op->getLoc())
        << "the earlier access is here";
    break;
  }
}

// What one warp has in a buffer stays its own business until another buffer gets the bytes: then no
// other warp may be at the old one any more.
void Local::meet(const Thread &thread, const Records &records, const Shared &buffer,
                 const Shared &other, const Record &record) {
  for (const Record &before : records) {
    if (!(before.isWrite || record.isWrite) || hasMet(thread, before))
      continue;
    faults.at(record.op, sm)
            .append(
                "the " + nameOfTask(record.op) + " touches @" + Program::nameOf(buffer.op).str() +
                ", which has bytes of @" + Program::nameOf(other.op).str() +
                ", while other warps of the " + nameOfRole(thread.role).str() +
                " may still be at the " + nameOfTask(before.op) +
                "; expected a task.refill, or an edge to another role and one back, between them")
            .attachNote(before.op->getLoc())
        << "the earlier access is here";
    return;
  }
}

// Which filling of its guard a role touches; negative if that is a fault.
int64_t Local::fillingOf(Thread &thread, const Instr &instr, const Shared &buffer) {
  if (buffer.guard < 0) {
    // What an earlier launch left is not this one's, nor what was there before a refill. Both only
    // grow, so each launch and each refill begins a number of its own.
    return instr.launch + shared[&buffer - program.shared.data()].refills;
  }
  const Edge &guard = program.edges[buffer.guard];
  const EdgeState &state = edges[buffer.guard];
  const bool isReader = guard.waits(thread.role);
  if (!isReader && thread.role != guard.from) {
    faults.at(instr.op, sm)
            .append("the ", nameOfTask(instr.op), " touches @", Program::nameOf(buffer.op),
                    ", but its guard @", Program::nameOf(guard.op), " does not join the ",
                    nameOfRole(thread.role), "; expected it among the edge's roles")
            .attachNote(guard.op->getLoc())
        << "the edge is declared here";
    return -1;
  }
  const int64_t use = isReader ? state.waits[thread.role] - 1 : state.signals();
  if (use < 0)
    faults.at(instr.op, sm) << "touches @" << Program::nameOf(buffer.op) << " before any wait for @"
                            << Program::nameOf(guard.op) << "; expected a task.wait before it";
  return use;
}

/// An entry of a list that grows on demand: as many slots are used as fillings come.
template <typename List> static auto &entryOf(List &list, int64_t index) {
  if (index >= static_cast<int64_t>(list.size()))
    list.resize(index + 1);
  return list[index];
}

void Local::tellAgain(const Record &record, const Shared &buffer) {
  faults.at(record.op, sm) << "fills @" << Program::nameOf(buffer.op) << ' '
                           << describe(record.rect) << " again, while other warps of the "
                           << nameOfRole(record.role)
                           << " may still be at it; expected a task.refill before";
}

// Where each warp fills its share anew, other warps may be at the old one until they meet: they
// read it, in a step of their own or within the one that fills it. So too where an earlier launch
// left it. Calls of one work may fill shares over and over, in their stage, for a step that reads
// them afterwards: whether one does shows when the filling ends.
void Local::checkLeft(const Thread &thread, const Instr &instr, const Shared &buffer,
                      const Records &records, Filling &filling, const Record &record) {
  auto isLeft = [&](const Record &before) {
    return instr.meets || hasMet(thread, before) || !before.rect.overlaps(record.rect);
  };
  auto goesOn = [&](const Record &before) {
    return areOfOneWork(before.op, record.op) &&
           before.op->getParentOfType<StageOp>() == record.op->getParentOfType<StageOp>();
  };
  endShares(buffer, filling,
            [&](const Record &share) { return share.rect.overlaps(record.rect) && isLeft(share); });
  bool isAgain = false;
  for (const Record &before : records) {
    if (isLeft(before))
      continue;
    if (!before.isWrite || before.use != record.use || !goesOn(before))
      return tellAgain(record, buffer);
    isAgain = true;
  }
  if (!isAgain)
    return;
  llvm::erase_if(filling.shares,
                 [&](const Record &share) { return record.rect.contains(share.rect); });
  filling.shares.push_back(record);
}

// What of the shares is over without a step that came to read it was read within those that filled
// it.
void Local::endShares(const Shared &buffer, Filling &filling,
                      llvm::function_ref<bool(const Record &)> isOver) {
  llvm::erase_if(filling.shares, [&](const Record &share) {
    if (!isOver(share))
      return false;
    tellAgain(share, buffer);
    return true;
  });
}

void Local::endFilling(const Shared &buffer, Filling &filling) {
  endShares(buffer, filling, [](const Record &) { return true; });
  filling.written.clear();
}

// A few fillings more than there are slots are kept; older ones are gone.
// Whether none of the rectangle was in the filling yet.
bool Local::fill(SharedState &state, const Shared &buffer, int64_t use, const Rect &rect) {
  Filling &filling = entryOf(state.fillings, use % (buffer.slots + 2));
  if (filling.use > use)
    return true;
  if (filling.use < use) {
    endFilling(buffer, filling);
    filling.read.clear();
  }
  filling.use = use;
  return filling.written.add(rect);
}

bool Local::isFilled(SharedState &state, const Shared &buffer, int64_t use, const Rect &rect) {
  const Filling &filling = entryOf(state.fillings, use % (buffer.slots + 2));
  return filling.use == use && filling.written.contains(rect);
}

bool Local::reads(const Instr &instr, int decl) const {
  return llvm::any_of(program.accessesOf(instr), [&](const Access &access) {
    return access.isShared && !access.isWrite && access.decl == decl;
  });
}

bool Local::writes(const Instr &instr, int decl) const {
  return llvm::any_of(program.accessesOf(instr), [&](const Access &access) {
    return access.isShared && access.isWrite && access.decl == decl;
  });
}

// The code finds a filling's slot by the number that some wait or acquire gave it.
void Local::checkSlot(const Thread &thread, const Instr &instr, const Shared &buffer, int64_t use) {
  if (buffer.slots == 1 || buffer.guard < 0 || instr.numbers.empty())
    return;
  for (int index : instr.numbers) {
    const int64_t slots = program.edges[index].slots, uses = edges[index].waits[thread.role];
    if (slots == buffer.slots && uses > 0 && (uses - 1) % slots == use % slots)
      return;
  }
  const Edge &edge = program.edges[instr.numbers.front()];
  faults.at(instr.op, sm) << "touches filling " << use << " of @" << Program::nameOf(buffer.op)
                          << " in a slot that @" << Program::nameOf(edge.op)
                          << " numbers, of whose " << edge.slots
                          << " slots the number is that of use "
                          << edges[instr.numbers.front()].waits[thread.role] - 1
                          << "; expected an edge with as many slots as the buffer, " << buffer.slots
                          << ", waited for as often as the buffer was filled";
}

// What others have read stands: who works in place afterwards changes what a later reader finds.
void Local::checkUnread(const Instr &instr, const Shared &buffer, Filling &filling, bool isInPlace,
                        const Rect &rect) {
  if (!isInPlace) { // anew, which orders decide
    filling.read.clear();
    filling.writer = instr.op;
    return;
  }
  if (filling.read.overlaps(rect))
    faults.at(instr.op, sm) << "changes @" << Program::nameOf(buffer.op) << ' ' << describe(rect)
                            << " in place after another step of the filling has read it; expected "
                               "the change before";
}

// With who wrote the rest of the filling, or, where nobody did, any step that writes there.
void Local::tellUnfilled(const Instr &instr, const Shared &buffer, const Filling &filling,
                         int64_t use, const Rect &rect) {
  const bool isBegun = filling.use == use && filling.written.overlaps(rect);
  InFlightDiagnostic fault = faults.at(instr.op, sm);
  fault << "the " << nameOfTask(instr.op) << " reads @" << Program::nameOf(buffer.op) << ' '
        << describe(rect) << ", not all of which filling " << use << " wrote";
  if (const auto missing = isBegun ? filling.written.firstMissing(rect) : std::nullopt)
    fault << " (not row " << missing->first << ", column " << missing->second << ')';
  fault << "; expected a write of it before";
  if (buffer.guard >= 0)
    fault << ", which signals @" << Program::nameOf(program.edges[buffer.guard].op);
  Operation *writer = isBegun ? filling.writer : nullptr;
  for (const auto &role : program.code)
    for (const Instr &other : role)
      if (!writer && &other != &instr && writes(other, &buffer - program.shared.data()))
        writer = other.op;
  if (writer)
    fault.attachNote(writer->getLoc())
        << "the " << nameOfTask(writer) << (isBegun ? " wrote the rest here" : " writes it here");
}

void Local::access(Thread &thread, const Instr &instr, const Access &access) {
  const Shared &buffer = program.shared[access.decl];
  const Rect rect = access.at(thread.dims.data());
  if (rect.empty())
    return;
  if (!rect.fits(buffer.rows, buffer.cols)) {
    faults.at(instr.op, sm) << "touches " << access.attr.getBuffer() << ' ' << describe(rect)
                            << ", outside its " << buffer.rows << " x " << buffer.cols
                            << "; expected a place inside";
    return;
  }
  const int64_t use = fillingOf(thread, instr, buffer);
  if (use < 0)
    return;
  checkSlot(thread, instr, buffer, use);
  SharedState &state = shared[access.decl];
  Records &records = entryOf(state.slots, use % buffer.slots);
  Record record{thread.role, thread.clock[thread.role], access.isWrite, rect, instr.op, use};
  if (access.isWrite && instr.joins >= 0) {
    record.edge = instr.joins;
    record.landing = edges[instr.joins].signals();
  }
  order(thread, records, buffer.op, record);
  // Buffers planned over the same bytes: any two accesses conflict.
  for (int index : buffer.overlapping) {
    const Shared &other = program.shared[index];
    Record all = record;
    all.isWrite = true;
    all.rect = {0, other.rows, 0, other.cols};
    for (const Records &of : shared[index].slots) {
      order(thread, of, other.op, all);
      meet(thread, of, buffer, other, record);
    }
    if (!access.isWrite)
      continue;
    if (reads(instr, index))
      faults.at(instr.op, sm) << "the " << nameOfTask(instr.op) << " fills @"
                              << Program::nameOf(buffer.op) << " over bytes of @"
                              << Program::nameOf(other.op)
                              << ", which the same op reads; expected buffers that lie apart";
    // What it held is gone, whoever wrote it.
    for (Filling &filling : shared[index].fillings)
      endFilling(other, filling);
  }
  if (access.isWrite) {
    // An op that reads what it replaces works in place.
    const bool isInPlace = reads(instr, access.decl);
    const bool isFresh = fill(state, buffer, use, rect);
    Filling &filling = entryOf(state.fillings, use % (buffer.slots + 2));
    checkUnread(instr, buffer, filling, isInPlace, rect);
    if (!isInPlace && state.refills > 0 && !isFresh)
      tellAgain(record, buffer);
    else if (!isInPlace)
      checkLeft(thread, instr, buffer, records, filling, record);
  } else if (!isFilled(state, buffer, use, rect)) {
    tellUnfilled(instr, buffer, entryOf(state.fillings, use % (buffer.slots + 2)), use, rect);
  }
  if (!access.isWrite) {
    Filling &filling = entryOf(state.fillings, use % (buffer.slots + 2));
    if (!writes(instr, access.decl)) {
      filling.read.include(rect);
      llvm::erase_if(filling.shares,
                     [&](const Record &share) { return filling.read.contains(share.rect); });
    }
    if (Source &source = summary.sources[&access - program.accesses.data()]; !source.reader)
      source = {instr.op, filling.writer};
  }
  llvm::erase_if(records, [&](const Record &before) {
    const bool isKnown = knows(thread, before);
    // A write stands for a read only where all warps are through with that: who works in place
    // reads too.
    const bool isReplaced = before.isWrite   ? access.isWrite
                            : access.isWrite ? instr.meets || hasMet(thread, before)
                                             : before.role == thread.role;
    return isKnown && isReplaced && rect.contains(before.rect);
  });
  records.push_back(record);
}

void Local::accessRing(Thread &thread, const Instr &instr, bool isWrite) {
  const Ring &ring = program.rings[instr.ring];
  RingState &state = rings[instr.ring];
  const EdgeState &full = edges[ring.full];
  const int64_t use = isWrite ? full.signals() : full.waits[thread.role] - 1;
  if (use < 0) {
    faults.at(instr.op, sm) << "reads the ring before any wait for @"
                            << Program::nameOf(program.edges[ring.full].op)
                            << "; expected a task.wait before it";
    return;
  }
  Records &records = entryOf(state.slots, use % ring.slots);
  Record record{thread.role, thread.clock[thread.role], isWrite, {0, 1, 0, 1}, instr.op, use};
  if (isWrite) {
    record.edge = ring.full;
    record.landing = use;
  }
  order(thread, records, ring.op, record);
  if (isWrite)
    records.clear();
  records.push_back(record);
  if (isWrite)
    return;
  if (use > state.read)
    faults.at(instr.op, sm) << "reads piece " << use << " of the ring, but piece " << state.read
                            << " was never read: a streamed block of this role is lost; expected a "
                               "task.compute that reads the ring after each task.wait";
  state.read = std::max(state.read, use + 1);
}
