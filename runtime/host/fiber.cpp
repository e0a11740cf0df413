#include "runtime/host/fiber.h"

#include <cstring>
#include <sys/mman.h>

#ifndef __x86_64__
#error "the host platform's fiber switch is written for x86-64"
#endif

asm(R"(
.text
.globl megalith_switch_stack
.type megalith_switch_stack, @function
.p2align 4
megalith_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size megalith_switch_stack, .-megalith_switch_stack
)");

namespace megalith::host {

StackArena::~StackArena() {
  if (base)
    munmap(base, mapped);
}

bool StackArena::reserve(size_t count, size_t bytes) {
  // Below each stack lies as much again that nobody uses, so that an overflow does no harm before
  // it is found. An odd number of cache lines more than a power of two, or all stack tops would
  // fall into the same cache set.
  usable = (bytes + 63) / 64 * 64;
  stride = 2 * usable + 9 * 64;
  mapped = count * stride;
  void *p = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED)
    return false;
  base = static_cast<unsigned char *>(p);
  return true;
}

void *StackArena::prepare(size_t index, void (*entry)()) const {
  // On entry the stack pointer is 8 mod 16, as after a call: slots are a return address of the
  // entry (0), the entry, and six registers. The stack grows down from a multiple of 64.
  if (overflowed(index)) // in an earlier run
    memset(low(index), 0, 64);
  auto **top = reinterpret_cast<void **>(low(index) + usable);
  *--top = nullptr;
  *--top = reinterpret_cast<void *>(entry);
  for (int i = 0; i < 6; ++i)
    *--top = nullptr;
  return top;
}

bool StackArena::overflowed(size_t index) const {
  // Fresh memory is zero, and reading it costs no page.
  uint64_t last[8];
  memcpy(last, low(index), sizeof last);
  for (uint64_t word : last)
    if (word != 0)
      return true;
  return false;
}

} // namespace megalith::host
