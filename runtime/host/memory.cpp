#include "runtime/host/memory.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace megalith::host {

void GlobalMemory::add(Buffer buffer) {
  auto at = std::lower_bound(buffers.begin(), buffers.end(), buffer.base,
                             [](const Buffer &b, uintptr_t base) { return b.base < base; });
  if (at != buffers.end() && at->base == buffer.base)
    *at = std::move(buffer);
  else
    buffers.insert(at, std::move(buffer));
  last = 0;
}

void GlobalMemory::clear() {
  buffers.clear();
  last = 0;
}

Location GlobalMemory::find(const void *p, uint64_t bytes) const {
  auto address = reinterpret_cast<uintptr_t>(p);
  auto holds = [&](const Buffer &b) {
    return address - b.base < b.bytes && bytes <= b.bytes - (address - b.base);
  };
  if (last < static_cast<int>(buffers.size()) && holds(buffers[last]))
    return {last, address - buffers[last].base};
  auto above = std::upper_bound(buffers.begin(), buffers.end(), address,
                                [](uintptr_t a, const Buffer &b) { return a < b.base; });
  if (above == buffers.begin() || !holds(above[-1]))
    return {};
  last = static_cast<int>(above - buffers.begin()) - 1;
  return {last, address - buffers[last].base};
}

std::string GlobalMemory::describe(const void *p) const {
  auto address = reinterpret_cast<uintptr_t>(p);
  const Buffer *below = nullptr;
  for (const Buffer &b : buffers)
    if (b.base <= address)
      below = &b;
  if (!p)
    return "the null pointer";
  if (!below)
    return "an address below every registered buffer";
  uint64_t offset = address - below->base;
  std::string text = "'" + below->name + "' + " + std::to_string(offset);
  if (offset >= below->bytes)
    text += " (past its " + std::to_string(below->bytes) + " bytes)";
  return text;
}

std::string GlobalMemory::check() const {
  for (size_t i = 0; i < buffers.size(); ++i) {
    const Buffer &b = buffers[i];
    if (b.base % 16 != 0)
      return "buffer '" + b.name +
             "' does not begin at a multiple of 16 bytes, as GPU buffers do; align it";
    if (i > 0 && b.base - buffers[i - 1].base < buffers[i - 1].bytes)
      return "buffers '" + buffers[i - 1].name + "' and '" + b.name +
             "' overlap; register each byte once";
  }
  return "";
}

void apply(const PendingStore &store, unsigned char *target) {
  if (!store.add) {
    memcpy(target, store.data, store.bytes);
    return;
  }
  uint32_t sum, value;
  memcpy(&sum, target, 4);
  memcpy(&value, store.data, 4);
  sum += value;
  memcpy(target, &sum, 4);
}

void StoreBuffer::push(const PendingStore &store) {
  uintptr_t line = store.address >> 4;
  auto [it, fresh] = index.try_emplace(line, static_cast<uint32_t>(used));
  if (fresh) {
    if (used == lines.size())
      lines.emplace_back();
    lines[used].line = line;
    ++used;
  }
  lines[it->second].stores.push_back(store);
  ++total;
}

static bool overlap(const PendingStore &a, const PendingStore &b) {
  return a.address < b.address + b.bytes && b.address < a.address + a.bytes;
}

PendingStore StoreBuffer::pop(uint32_t choice, uint32_t pick) {
  size_t slot = choice % used;
  std::vector<PendingStore> &stores = lines[slot].stores;
  // Whatever was picked, the oldest store that overlaps it goes first.
  size_t chosen = pick % stores.size();
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t i = 0; i < chosen && !moved; ++i)
      if (overlap(stores[i], stores[chosen])) {
        chosen = i;
        moved = true;
      }
  }
  PendingStore store = stores[chosen];
  stores.erase(stores.begin() + static_cast<ptrdiff_t>(chosen));
  --total;
  if (stores.empty()) {
    index.erase(lines[slot].line);
    --used;
    if (slot != used) {
      std::swap(lines[slot], lines[used]);
      index[lines[slot].line] = static_cast<uint32_t>(slot);
    }
  }
  return store;
}

void StoreBuffer::overlay(uintptr_t address, uint32_t bytes, unsigned char *out) const {
  auto it = index.find(address >> 4); // accesses are aligned, so they stay in one line
  if (it == index.end())
    return;
  unsigned char line[16] = {};
  uintptr_t base = address & ~uintptr_t{15};
  memcpy(line + (address - base), out, bytes);
  for (const PendingStore &store : lines[it->second].stores)
    if (store.address < address + bytes && address < store.address + store.bytes)
      apply(store, line + (store.address - base));
  memcpy(out, line + (address - base), bytes);
}

void StoreBuffer::clear() {
  index.clear();
  for (size_t i = 0; i < used; ++i)
    lines[i].stores.clear();
  used = total = 0;
}

} // namespace megalith::host
