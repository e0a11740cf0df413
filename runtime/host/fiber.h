// Fibers: stacks and the switch between them. x86-64 System V only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace megalith::host {

/// Saves the caller's callee-saved registers and stack pointer to *save, continues at `load`.
/// Floating-point control words are not switched: kernels do not change them.
extern "C" void megalith_switch_stack(void **save, void *load);

/// A fixed number of equal stacks in one lazily touched mapping. There are no guard pages (46,000
/// would exceed the kernel's limit of mappings); the scheduler looks for overflows instead.
class StackArena {
public:
  StackArena() = default;
  StackArena(const StackArena &) = delete;
  StackArena &operator=(const StackArena &) = delete;
  ~StackArena();

  /// Returns false where the address space cannot be had.
  bool reserve(size_t count, size_t bytes);

  /// Lowest address of a stack.
  unsigned char *low(size_t index) const { return base + (index + 1) * stride - usable; }

  /// The stack pointer with which megalith_switch_stack enters `entry` on a fresh stack; `entry`
  /// must not return.
  void *prepare(size_t index, void (*entry)()) const;

  /// Whether the last bytes of a stack were written to.
  bool overflowed(size_t index) const;

private:
  unsigned char *base = nullptr;
  size_t mapped = 0, stride = 0, usable = 0;
};

} // namespace megalith::host
