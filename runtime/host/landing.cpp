// What is in flight in the machine, and how it becomes visible.
#include "runtime/host/scheduler.h"

#include <cstring>

namespace megalith::host {

void Machine::Impl::makeVisible(Cta &writer, const PendingStore &store) {
  auto *target = reinterpret_cast<unsigned char *>(store.address);
  Location at = memory.find(target, store.bytes);
  uint64_t line = at.key() & ~uint64_t{15};
  OldLine &old = oldLine(line);
  old.key = line;
  old.time = ++time;
  old.writer = writer.sm;
  // A buffer may end within its last line.
  uint64_t have = memory.buffer(at.buffer).bytes - (at.offset & ~uint64_t{15});
  memcpy(old.bytes, target - (at.offset & 15), have < 16 ? have : 16);
  apply(store, target);
  ++report.landings;
  progressed();
  mix(at.key());
  if (auto it = watches.find(at.key() >> 7); it != watches.end()) {
    it->second.changed = time;
    wakeAll(it->second.waiters);
  }
}

void Machine::Impl::landStore(Cta &cta, bool now) {
  bool far = !cta.far.empty() && (now || random.oneIn(temper.far_one_in));
  if (!far && cta.stores.empty())
    return; // it takes its time
  far &= cta.stores.empty() || random.oneIn(2);
  PendingStore store = (far ? cta.far : cta.stores).pop(random.next(), random.next());
  --pending_stores;
  if (cta.stores.empty() && cta.far.empty()) {
    Cta *last = dirty.back();
    dirty[static_cast<size_t>(cta.dirty_slot)] = last;
    last->dirty_slot = cta.dirty_slot;
    dirty.pop_back();
    cta.dirty_slot = -1;
  }
  makeVisible(cta, store);
}

void Machine::Impl::pushStore(Cta &cta, const PendingStore &store) {
  if (temper.max_stores == 0) {
    makeVisible(cta, store);
    return;
  }
  (store.far ? cta.far : cta.stores).push(store);
  ++pending_stores;
  if (cta.dirty_slot < 0) {
    cta.dirty_slot = static_cast<int>(dirty.size());
    dirty.push_back(&cta);
  }
  if (cta.stores.size() > temper.max_stores)
    landStore(cta);
}

void Machine::Impl::flush(Cta &cta) {
  while (!cta.stores.empty() || !cta.far.empty())
    landStore(cta, /*now=*/true);
}

void Machine::Impl::pushCopy(const CopyPiece &piece) {
  ++piece.cta->copies;
  copies.push_back(piece);
}

void Machine::Impl::landCopy(size_t index) {
  CopyPiece piece = copies[index];
  copies[index] = copies.back();
  copies.pop_back();
  --piece.cta->copies;
  const Buffer &buffer = memory.buffer(piece.buffer);
  if (buffer.generate)
    buffer.generate(reinterpret_cast<uintptr_t>(piece.src) - buffer.base, piece.bytes, piece.dst);
  else
    memcpy(piece.dst, piece.src, piece.bytes);
  ++time;
  ++report.landings;
  progressed();
  mix(static_cast<uint64_t>(piece.dst - piece.cta->smem) << 16 | piece.bytes);
  Mbarrier &bar = piece.cta->mbarriers[static_cast<size_t>(piece.mbarrier)];
  std::string wrong = bar.complete(piece.bytes);
  if (!wrong.empty())
    return note("sm " + std::to_string(piece.cta->sm) + ", mbarrier at shared + " +
                std::to_string(bar.offset) + ": " + wrong);
  barrierChanged(*piece.cta, piece.mbarrier);
}

void Machine::Impl::barrierChanged(Cta &cta, int index) {
  Mbarrier &bar = cta.mbarriers[static_cast<size_t>(index)];
  if (!bar.advance())
    return;
  progressed();
  wakeAll(bar.waiters);
}

/// One random thing in flight arrives: a piece of a copy, a store, or the start of a CTA.
void Machine::Impl::landOne() {
  uint32_t total = static_cast<uint32_t>(copies.size() + pending_stores + starts.size());
  uint32_t choice = random.below(total);
  if (choice < copies.size()) {
    landCopy(choice);
  } else if (choice < copies.size() + pending_stores) {
    landStore(*dirty[random.below(static_cast<uint32_t>(dirty.size()))]);
  } else {
    start_now = true;
  }
}

} // namespace megalith::host
