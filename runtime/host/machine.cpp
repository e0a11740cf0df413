#include "runtime/host/machine.h"

#include "runtime/host/scheduler.h"

#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

namespace megalith::host {

Machine::Impl::Impl(const Options &given) : options(given) {
  auto count = static_cast<size_t>(options.sms);
  // An arena ends where an unmapped page begins, so that running over it is seen at once.
  auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  size_t room = (options.smem_bytes + page - 1) / page * page, stride = room + page;
  arenas_mapped = count * stride;
  void *p =
      mmap(nullptr, arenas_mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  stacks_ready = p != MAP_FAILED && stacks.reserve(count * kThreadsPerCta, options.stack_bytes);
  if (!stacks_ready)
    return;
  arenas = static_cast<unsigned char *>(p);
  for (size_t i = 0; i < count; ++i) {
    unsigned char *first = arenas + i * stride;
    mprotect(first, room, PROT_READ | PROT_WRITE);
    ctas.push_back(std::make_unique<Cta>());
    ctas[i]->sm = static_cast<int>(i);
    ctas[i]->smem = first + (room - options.smem_bytes) / 128 * 128;
  }
}

Machine::Impl::~Impl() {
  if (arenas)
    munmap(arenas, arenas_mapped);
}

Machine::Machine(const Options &options) : impl(std::make_unique<Impl>(options)) {}
Machine::~Machine() = default;

void Machine::registerBuffer(void *base, size_t bytes, std::string name, Access access) {
  impl->memory.add({reinterpret_cast<uintptr_t>(base), bytes, std::move(name), access, {}});
}

void Machine::registerGenerated(const void *base, size_t bytes, std::string name,
                                Generator generator) {
  impl->memory.add({reinterpret_cast<uintptr_t>(base), bytes, std::move(name), Access::read,
                    std::move(generator)});
}

void Machine::clearBuffers() {
  impl->memory.clear();
}

void Machine::expectOthers() {
  impl->hasOthers = true;
}

llvm::Expected<RunReport> Machine::run(llvm::ArrayRef<Launch> launches, int streams) {
  return impl->run(launches, streams);
}

void Machine::reseed(uint64_t seed) {
  impl->options.seed = seed;
}

std::string Machine::log() const {
  return impl->logText;
}

void poison(void *p, size_t bytes) {
  static constexpr uint64_t kPattern = 0x7FC17FC17FC17FC1ull;
  auto *at = static_cast<unsigned char *>(p);
  for (; bytes >= 8; bytes -= 8, at += 8)
    memcpy(at, &kPattern, 8);
  memcpy(at, &kPattern, bytes);
}

void *reserveAddresses(size_t bytes) {
  void *p = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? nullptr : p;
}

} // namespace megalith::host
