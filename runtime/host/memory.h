// Global memory of the machine: registered buffers, what was there before a store, and the store
// buffer of an SM.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

namespace megalith::host {

enum class Access { read, read_write };

/// Writes bytes [offset, offset + bytes) of a generated buffer to dst.
using Generator = std::function<void(uint64_t offset, uint32_t bytes, void *dst)>;

struct Buffer {
  uintptr_t base;
  uint64_t bytes;
  std::string name;
  Access access;
  Generator generate; ///< empty: the bytes lie in memory
};

/// A place in a registered buffer, independent of where the process mapped it, so that what
/// depends on it is the same in each run.
struct Location {
  int buffer = -1; ///< -1: no buffer holds the whole range
  uint64_t offset = 0;
  uint64_t key() const { return (static_cast<uint64_t>(buffer) << 44) | offset; }
};

class GlobalMemory {
public:
  /// Buffers must not overlap; a later one at the same base replaces an earlier one.
  void add(Buffer buffer);
  void clear();

  Location find(const void *p, uint64_t bytes) const;
  const Buffer &buffer(int index) const { return buffers[index]; }
  /// "'logits' + 64", or for a wild address what lies below it.
  std::string describe(const void *p) const;
  /// What is wrong with the buffers (overlap, alignment), or "".
  std::string check() const;

private:
  std::vector<Buffer> buffers; // ascending by base
  mutable int last = 0;
};

/// A store (or an addition) that its SM has made and others do not see yet.
struct PendingStore {
  uintptr_t address;
  uint32_t bytes; ///< 2, 4, 8 or 16
  bool add = false;
  bool far = false; ///< of system scope: may take much longer
  unsigned char data[16] = {};
};

/// Stores of one SM on their way to memory. Overlapping ones leave in order, others in any order.
class StoreBuffer {
public:
  bool empty() const { return total == 0; }
  size_t size() const { return total; }
  void push(const PendingStore &store);
  /// Takes one out; choice and pick are random numbers.
  PendingStore pop(uint32_t choice, uint32_t pick);
  /// Lays this SM's pending stores over `bytes` at `address` just read from memory.
  void overlay(uintptr_t address, uint32_t bytes, unsigned char *out) const;
  void clear();

private:
  struct Line {
    uintptr_t line;
    std::vector<PendingStore> stores; // in order of issue
  };
  std::unordered_map<uintptr_t, uint32_t> index; // 16-byte line -> lines[]
  std::vector<Line> lines;
  size_t used = 0, total = 0;
};

/// Applies a pending store to `target` (the bytes at its address).
void apply(const PendingStore &store, unsigned char *target);

} // namespace megalith::host
