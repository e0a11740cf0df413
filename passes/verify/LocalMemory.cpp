// Shared memory of one SM: what is read was written, and nothing races.
#include "passes/verify/Local.h"

using namespace mlir;
using namespace megalith;
using namespace megalith::task;
using namespace megalith::verify;

// Both accesses touch the same bytes and one writes: the earlier must be known to this role.
void Local::order(Thread &thread, const Records &records, Operation *memory, const Record &record) {
  for (const Record &before : records) {
    if (before.role == record.role || !(before.isWrite || record.isWrite) ||
        before.clock <= thread.clock[before.role] || !before.rect.overlaps(record.rect))
      continue;
    faults.at(record.op, sm)
            .append(record.isWrite ? "the write of @" : "the read of @", Program::nameOf(memory),
                    " ", describe(record.rect), " by the ", nameOfRole(record.role),
                    " is not ordered after the ", before.isWrite ? "write" : "read", " by the ",
                    nameOfRole(before.role), "; expected an edge from the ",
                    nameOfRole(before.role), " to the ", nameOfRole(record.role), " between them")
            .attachNote(before.op->getLoc())
        << "the earlier access is here";
    break;
  }
}

// Which filling of its guard a role touches; negative if that is a fault.
int64_t Local::fillingOf(Thread &thread, const Instr &instr, const Shared &buffer) {
  if (buffer.guard < 0) {
    // What an earlier launch left is not this one's.
    const int64_t refills = shared[&buffer - program.shared.data()].refills;
    return refills > 0 ? refills : instr.launch;
  }
  const Edge &guard = program.edges[buffer.guard];
  const EdgeState &state = edges[buffer.guard];
  const bool isReader = guard.waits(thread.role);
  if (!isReader && thread.role != guard.from) {
    faults.at(instr.op, sm) << "touches @" << Program::nameOf(buffer.op) << ", but its guard @"
                            << Program::nameOf(guard.op) << " does not join the "
                            << nameOfRole(thread.role);
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

// A few fillings more than there are slots are kept; older ones are gone.
// Whether none of the rectangle was in the filling yet.
bool Local::fill(SharedState &state, const Shared &buffer, int64_t use, const Rect &rect) {
  Filling &filling = entryOf(state.fillings, use % (buffer.slots + 2));
  if (filling.use > use)
    return true;
  if (filling.use < use)
    filling.written.clear();
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

void Local::access(Thread &thread, const Instr &instr, const Access &access) {
  const Shared &buffer = program.shared[access.decl];
  const Rect rect = access.at(thread.dims.data());
  if (rect.empty())
    return;
  if (!rect.fits(buffer.rows, buffer.cols)) {
    faults.at(instr.op, sm) << "touches " << access.attr.getBuffer() << ' ' << describe(rect)
                            << ", outside its " << buffer.rows << " x " << buffer.cols;
    return;
  }
  const int64_t use = fillingOf(thread, instr, buffer);
  if (use < 0)
    return;
  SharedState &state = shared[access.decl];
  Records &records = entryOf(state.slots, use % buffer.slots);
  const Record record{thread.role, thread.clock[thread.role], access.isWrite, rect, instr.op};
  order(thread, records, buffer.op, record);
  // Buffers planned over the same bytes: any two accesses conflict.
  for (int index : buffer.overlapping) {
    const Shared &other = program.shared[index];
    Record all = record;
    all.isWrite = true;
    all.rect = {0, other.rows, 0, other.cols};
    for (const Records &of : shared[index].slots)
      order(thread, of, other.op, all);
  }
  if (access.isWrite) {
    // Where each warp fills its share anew, other warps may read the old one until they meet; an op
    // that reads what it replaces works in place.
    if (!fill(state, buffer, use, rect) && state.refills > 0 && !reads(instr, access.decl))
      faults.at(instr.op, sm) << "fills @" << Program::nameOf(buffer.op) << ' ' << describe(rect)
                              << " again, while other warps of the " << nameOfRole(thread.role)
                              << " may still read it; expected a task.refill before";
  } else if (!isFilled(state, buffer, use, rect))
    faults.at(instr.op, sm) << "reads @" << Program::nameOf(buffer.op) << ' ' << describe(rect)
                            << ", not all of which filling " << use
                            << " wrote; expected a write of it before";
  llvm::erase_if(records, [&](const Record &before) {
    const bool isKnown = before.clock <= thread.clock[before.role];
    const bool isReplaced = access.isWrite || (!before.isWrite && before.role == thread.role);
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
                            << Program::nameOf(program.edges[ring.full].op);
    return;
  }
  Records &records = entryOf(state.slots, use % ring.slots);
  const Record record{thread.role, thread.clock[thread.role], isWrite, {0, 1, 0, 1}, instr.op};
  order(thread, records, ring.op, record);
  if (isWrite)
    records.clear();
  records.push_back(record);
  if (isWrite)
    return;
  if (use > state.read)
    faults.at(instr.op, sm) << "reads piece " << use << " of the ring, but piece " << state.read
                            << " was never read: a streamed block of this role is lost";
  state.read = std::max(state.read, use + 1);
}
