// The machine's side of the table of functions that device code calls.
#include "runtime/host/mma.h"
#include "runtime/host/scheduler.h"

#include <cstring>

namespace megalith::host {

namespace {

using Impl = Machine::Impl;

Fiber &self() {
  return *active->current;
}
Cta &cta() {
  return *active->current->cta;
}
std::string text(uint64_t value) {
  return std::to_string(value);
}

// --- the log ---

std::string word(std::string name) {
  for (char &c : name)
    c = c == ' ' ? '_' : c;
  return name;
}

void logLine(const std::string &line) {
  const Fiber &f = self();
  active->log.line(f.cta->launch, f.cta->sm, f.warp, f.lane, line);
}

/// Where the machine keeps a log, a range of the step that the thread is at.
void logAccess(const std::string &what, uint64_t begin, uint64_t bytes) {
  const Fiber &f = self();
  active->log.access(f.cta->launch, f.cta->sm, f.warp, f.lane, what, begin, begin + bytes);
}

void logStep(const char *text) {
  const Fiber &f = self();
  if (active->options.log && !active->log.step(f.cta->launch, f.cta->sm, f.warp, f.lane, text))
    active->fault(std::string("the lanes of the warp do not all come to ") + text);
}

void mark(const char *verb, const char *name, const char *order) {
  Impl &m = *active;
  if (!m.options.log)
    return;
  const Fiber &f = self();
  const std::string text = verb ? std::string(verb) + " @" + name + " " + order : std::string();
  if (!m.log.mark(f.cta->launch, f.cta->sm, f.warp, f.lane, text))
    m.fault("the lanes of the warp pass different marks, this one " + text);
}

void logShared(const void *p, uint64_t bytes, bool isWrite) {
  Impl &m = *active;
  const auto offset = static_cast<uint64_t>(static_cast<const unsigned char *>(p) - cta().smem);
  if (m.options.log && offset < m.options.smem_bytes) // a thread's own memory is nobody's business
    logAccess(isWrite ? "shared write" : "shared read", offset, bytes);
}

void shared(const void *p, uint32_t bytes, bool isWrite) {
  logShared(p, bytes, isWrite);
}

// --- global memory ---

const char *nameOf(Order order) {
  switch (order) {
  case Order::constant:
    return "constant";
  case Order::weak:
    return "weak";
  case Order::relaxed:
    return "relaxed";
  case Order::acquire:
    return "acquire";
  case Order::release:
    return "release";
  case Order::system:
    return "relaxed system";
  }
  return "";
}

/// The buffer an access falls into; a fault where there is none.
Location checked(const void *p, uint32_t bytes, const char *what, Order order, bool write) {
  Impl &m = *active;
  Location at = m.memory.find(p, bytes);
  auto describe = [&] {
    return std::string(nameOf(order)) + " " + what + " of " + text(bytes) + " bytes at " +
           m.memory.describe(p);
  };
  if (at.buffer < 0)
    m.fault(describe() + ": outside every registered buffer");
  if (at.offset % bytes != 0)
    m.fault(describe() + ": not a multiple of its size");
  const Buffer &buffer = m.memory.buffer(at.buffer);
  if (m.options.log)
    logAccess(std::string(*what == 'l' ? "load " : "store ") + word(buffer.name) + " " +
                  nameOf(order),
              at.offset, bytes);
  if (write && buffer.access == Access::read)
    m.fault(describe() + ": the buffer is registered as read-only");
  if (buffer.generate && order != Order::constant)
    m.fault(describe() + ": generated buffers know constant loads and bulk copies only");
  return at;
}

void load(const void *p, uint32_t bytes, Order order, void *out) {
  Impl &m = *active;
  if (order == Order::constant) {
    Location at = checked(p, bytes, "load", order, false);
    const Buffer &buffer = m.memory.buffer(at.buffer);
    if (buffer.generate)
      buffer.generate(at.offset, bytes, out);
    else
      memcpy(out, p, bytes);
    return;
  }
  m.preemptionPoint();
  Location at = checked(p, bytes, "load", order, false);
  memcpy(out, p, bytes);
  Cta &c = cta();
  if (order == Order::weak) {
    const OldLine &old = m.oldLine(at.key() & ~uint64_t{15});
    if (old.key == (at.key() & ~uint64_t{15}) && old.time > c.acquire_time && old.writer != c.sm &&
        m.random.oneIn(m.temper.stale_one_in))
      memcpy(out, old.bytes + (at.offset & 15), bytes);
  }
  for (const StoreBuffer *stores : {&c.stores, &c.far})
    if (!stores->empty())
      stores->overlay(reinterpret_cast<uintptr_t>(p), bytes, static_cast<unsigned char *>(out));
  if (order == Order::acquire)
    c.acquire_time = m.time;
}

void loadWords(const uint32_t *p, uint32_t out[4]) {
  Impl &m = *active;
  if (m.memory.find(p, 16).buffer >= 0 && reinterpret_cast<uintptr_t>(p) % 16 != 0)
    m.fault("relaxed load of 4 words at " + m.memory.describe(p) + ": not 16-byte aligned");
  // Four accesses: their order is free, and stores may become visible between them.
  int first = m.temper.shuffle ? static_cast<int>(m.random.below(4)) : 0;
  for (int i = 0; i < 4; ++i) {
    int word = (i + first) & 3;
    load(p + word, 4, Order::relaxed, &out[word]);
  }
}

void store(void *p, uint32_t bytes, Order order, const void *value) {
  Impl &m = *active;
  m.preemptionPoint();
  checked(p, bytes, "store", order, true);
  if (order == Order::release)
    m.flush(cta());
  PendingStore s = {
      .address = reinterpret_cast<uintptr_t>(p), .bytes = bytes, .far = order == Order::system};
  if (order == Order::weak && bytes == 16) { // torn
    s.bytes = 8;
    memcpy(s.data, value, 8);
    m.pushStore(cta(), s);
    s.address += 8;
    value = static_cast<const unsigned char *>(value) + 8;
  }
  memcpy(s.data, value, s.bytes);
  m.pushStore(cta(), s);
}

void add(uint32_t *p, uint32_t value, Order order) {
  Impl &m = *active;
  m.preemptionPoint();
  checked(p, 4, "addition", order, true);
  if (order == Order::release)
    m.flush(cta());
  PendingStore s = {.address = reinterpret_cast<uintptr_t>(p), .bytes = 4, .add = true};
  memcpy(s.data, &value, 4);
  m.pushStore(cta(), s);
}

// --- mbarriers ---

/// What the 8 bytes of a live mbarrier hold: where its state is. Anything else was overwritten.
struct Cell {
  uint32_t index, tag;
};
constexpr uint32_t kTag = 0x4D62A55Eu;

uint32_t sharedOffset(const void *p, uint32_t bytes, uint32_t alignment, const char *what) {
  Impl &m = *active;
  auto offset = static_cast<uint64_t>(static_cast<const unsigned char *>(p) - cta().smem);
  if (offset >= m.options.smem_bytes || bytes > m.options.smem_bytes - offset)
    m.fault(std::string(what) + " of " + text(bytes) + " bytes is not inside the " +
            text(m.options.smem_bytes) + " bytes of shared memory");
  if (offset % alignment != 0)
    m.fault(std::string(what) + " at shared + " + text(offset) + " is not " + text(alignment) +
            "-byte aligned");
  return static_cast<uint32_t>(offset);
}

int barrierAt(const uint64_t *bar) {
  Impl &m = *active;
  uint32_t offset = sharedOffset(bar, 8, 8, "mbarrier");
  Cell cell;
  memcpy(&cell, bar, 8);
  if (cell.tag != (kTag ^ offset) || cell.index >= cta().mbarriers.size())
    m.fault("shared + " + text(offset) +
            " holds no mbarrier: it was never initialised, or was overwritten");
  return static_cast<int>(cell.index);
}

std::string nameOf(const Mbarrier &bar) {
  return "mbarrier at shared + " + text(bar.offset);
}

void mbarrierInit(uint64_t *bar, uint32_t arrivals) {
  Impl &m = *active;
  uint32_t offset = sharedOffset(bar, 8, 8, "mbarrier");
  if (arrivals == 0 || arrivals >= 1u << 20)
    m.fault("mbarrier at shared + " + text(offset) + " is initialised for " + text(arrivals) +
            " arrivals; 1 to 2^20 - 1 can be");
  auto &bars = cta().mbarriers;
  size_t index = 0;
  while (index < bars.size() && bars[index].offset != offset)
    ++index;
  if (index == bars.size())
    bars.emplace_back();
  bars[index].init(offset, arrivals);
  Cell cell = {static_cast<uint32_t>(index), kTag ^ offset};
  memcpy(bar, &cell, 8);
}

void mbarrierArrive(uint64_t *bar, uint32_t expect) {
  Impl &m = *active;
  m.preemptionPoint();
  int index = barrierAt(bar);
  Mbarrier &b = cta().mbarriers[static_cast<size_t>(index)];
  if (m.options.log)
    logLine("barrier arrive " + text(b.offset));
  std::string wrong = b.arrive(expect);
  if (!wrong.empty())
    m.fault(nameOf(b) + ": " + wrong);
  m.barrierChanged(cta(), index);
}

void mbarrierExpect(uint64_t *bar, uint32_t bytes) {
  Impl &m = *active;
  m.preemptionPoint();
  Mbarrier &b = cta().mbarriers[static_cast<size_t>(barrierAt(bar))];
  if (m.options.log)
    logLine("barrier expect " + text(b.offset));
  std::string wrong = b.expect(bytes);
  if (!wrong.empty())
    m.fault(nameOf(b) + ": " + wrong);
}

bool mbarrierTryWait(uint64_t *bar, uint32_t parity) {
  Impl &m = *active;
  m.preemptionPoint();
  Fiber &f = self();
  int thread = f.warp * 32 + f.lane;
  auto index = static_cast<size_t>(barrierAt(bar));
  Mbarrier &b = cta().mbarriers[index];
  if (m.options.log)
    logLine("barrier wait " + text(b.offset));
  std::string wrong = b.checkWait(thread, parity);
  if (!wrong.empty())
    m.fault(nameOf(b) + ": " + wrong);
  if (b.done(parity)) {
    if (m.random.oneIn(m.temper.spurious_one_in))
      return false;
    b.waited[static_cast<size_t>(thread)] = b.phase - 1;
    return true;
  }
  if (m.refuses(f))
    return false;
  int64_t wanted = b.phase;
  f.id = static_cast<int>(index);
  b.waiters.push_back(&f);
  m.block(Park::mbarrier);
  Mbarrier &after = cta().mbarriers[index];
  if (after.phase == wanted) // woken because its deadline passed
    return false;
  if (after.phase > wanted + 1)
    m.fault(nameOf(after) + ": phase " + text(static_cast<uint64_t>(wanted)) +
            " was waited for, but the current phase is already " +
            text(static_cast<uint64_t>(after.phase)) +
            ": a waiter may be one phase behind at most");
  after.waited[static_cast<size_t>(thread)] = wanted;
  return true;
}

void mbarrierPassed(uint64_t *bar, uint32_t phases) {
  Fiber &f = self();
  Mbarrier &b = cta().mbarriers[static_cast<size_t>(barrierAt(bar))];
  if (b.phase < int64_t{phases})
    active->fault(nameOf(b) + ": its first " + text(phases) +
                  " phases are said to be over, but the current one is " +
                  text(static_cast<uint64_t>(b.phase)));
  int64_t &last = b.waited[static_cast<size_t>(f.warp * 32 + f.lane)];
  if (phases > 0 && last < int64_t{phases} - 1)
    last = int64_t{phases} - 1;
}

// --- bulk copies ---

void copyBulk(void *dst, const void *src, uint32_t bytes, uint64_t *bar) {
  Impl &m = *active;
  m.preemptionPoint();
  std::string what = "bulk copy of " + text(bytes) + " bytes from " + m.memory.describe(src);
  if (bytes == 0 || bytes % 16 != 0)
    m.fault(what + ": not a positive multiple of 16 bytes");
  const uint32_t target = sharedOffset(dst, bytes, 16, "destination of a bulk copy");
  Location at = m.memory.find(src, bytes);
  if (at.buffer < 0)
    m.fault(what + ": not inside one registered buffer");
  if (at.offset % 16 != 0)
    m.fault(what + ": source is not 16-byte aligned");
  int index = barrierAt(bar);
  if (m.options.log)
    logLine("copy " + word(m.memory.buffer(at.buffer).name) + " " + text(at.offset) + " " +
            text(bytes) + " to " + text(target) + " barrier " +
            text(cta().mbarriers[static_cast<size_t>(index)].offset));
  poison(dst, bytes);
  uint32_t pieces = 1 + m.random.below(m.temper.max_pieces), done = 0;
  for (uint32_t i = 0; i < pieces && done < bytes; ++i) {
    uint32_t left = (bytes - done) / 16;
    uint32_t take = i + 1 == pieces ? left : 1 + m.random.below(left);
    m.pushCopy({&cta(), static_cast<unsigned char *>(dst) + done,
                static_cast<const unsigned char *>(src) + done, take * 16, index, at.buffer});
    done += take * 16;
  }
}

void prefetch(const void *p, uint32_t bytes) {
  Impl &m = *active;
  Location at = m.memory.find(p, bytes);
  if (at.buffer < 0 || bytes % 16 != 0 || at.offset % 16 != 0)
    m.fault("L2 prefetch of " + text(bytes) + " bytes at " + m.memory.describe(p) +
            ": not a 16-byte aligned range inside one registered buffer");
}

// --- warps ---

const char *nameOf(Collective op) {
  static const char *const kNames[] = {"warp_sync", "shfl", "shfl_xor", "ballot", "mma_k_loop"};
  return kNames[static_cast<int>(op)];
}

void collective(Collective op, const void *in, int argument, void *out) {
  Impl &m = *active;
  Fiber &f = self();
  Warp &w = cta().warps[f.warp];
  if (w.arrived == 0)
    w.op = op;
  else if (w.op != op)
    m.fault(std::string("the warp diverges: this lane is at ") + nameOf(op) + ", others are at " +
            nameOf(w.op));
  if (op == Collective::mma && m.options.log) {
    const auto &l = *static_cast<const platform::MmaLoop *>(in);
    for (int s = l.first; s < l.steps; s += l.every) {
      if (l.a_valid)
        logShared(l.a + ((l.j0 + s) ^ l.swap) * l.a_stride, 16, false);
      if (l.b_valid)
        logShared(l.b + s * l.b_stride, 8, false);
    }
  }
  if (op == Collective::mma) {
    w.mma_in[f.lane] = in;
    w.mma_out[f.lane] = out;
  } else if (in) {
    memcpy(&w.in[f.lane], in, 8);
  }
  w.argument[f.lane] = argument;
  w.arrived |= 1u << f.lane;
  if (w.arrived != 0xFFFFFFFFu) {
    m.block(Park::collective);
  } else {
    // The last lane to arrive computes for all.
    ++m.report.collectives;
    w.arrived = 0;
    uint32_t votes = 0;
    for (uint32_t lane = 0; lane < 32; ++lane) {
      if (op == Collective::shuffle)
        w.out[lane] = w.in[w.argument[lane] & 31];
      else if (op == Collective::shuffle_xor)
        w.out[lane] = w.in[(static_cast<int>(lane) ^ w.argument[lane]) & 31];
      else if (op == Collective::ballot)
        votes |= (w.in[lane] != 0 ? 1u : 0u) << lane;
    }
    if (op == Collective::ballot)
      for (uint64_t &result : w.out)
        result = votes;
    if (op == Collective::mma &&
        !mmaKLoop(reinterpret_cast<const platform::MmaLoop *const *>(w.mma_in),
                  reinterpret_cast<float *const *>(w.mma_out)))
      m.fault("mma_k_loop: steps, j0 or strides differ between lanes of the warp");
    for (int lane = 0; lane < 32; ++lane)
      if (lane != f.lane)
        m.makeRunnable(&cta().fibers[f.warp * 32 + lane]);
  }
  if (op != Collective::mma && op != Collective::sync)
    memcpy(out, &w.out[f.lane], 8);
}

void namedBarrier(int id, int threads) {
  Impl &m = *active;
  if (id < 0 || id > 15 || threads <= 0 || threads % 32 != 0 || threads > kThreadsPerCta)
    m.fault("named barrier " + std::to_string(id) + " of " + std::to_string(threads) +
            " threads: ids are 0..15, threads a multiple of 32 up to " +
            std::to_string(kThreadsPerCta));
  NamedBarrier &bar = cta().named[id];
  if (bar.arrived == 0)
    bar.threads = threads;
  else if (bar.threads != threads)
    m.fault("named barrier " + std::to_string(id) + " is used for " + std::to_string(threads) +
            " threads while others wait on it for " + std::to_string(bar.threads));
  if (++bar.arrived == bar.threads) {
    bar.arrived = 0;
    m.progressed();
    m.wakeAll(bar.waiters);
    m.preemptionPoint();
    return;
  }
  self().id = id;
  bar.waiters.push_back(&self());
  m.block(Park::named_barrier);
}

// --- launches, time, polls ---

void launchWait() {
  Impl &m = *active;
  logStep("launch_wait");
  int previous = cta().launch - 1;
  if (previous >= 0) {
    LaunchState &launch = m.stateOf(cta(), previous);
    if (!launch.complete) {
      launch.waiters.push_back(&self());
      m.block(Park::launch);
    }
  }
  cta().acquire_time = m.time;
}

void launchDependents() {
  logStep("launch_dependents");
  active->triggerDependents(cta());
}

uint64_t nowNs() {
  active->preemptionPoint();
  return active->logicalTime();
}

uint32_t clock() {
  return static_cast<uint32_t>(active->time);
}

void pollPause(const void *p) {
  Impl &m = *active;
  Fiber &f = self();
  Location at = m.memory.find(p, 1);
  if (at.buffer < 0)
    m.fault("poll_pause at " + m.memory.describe(p) + ": outside every registered buffer");
  if (m.refuses(f))
    return;
  // A change between this thread's look and here must not be lost: what changed since its last
  // pause counts as news. Of a line that nobody watched yet nothing is known.
  auto [it, fresh] = m.watches.try_emplace(at.key() >> 7);
  if (fresh)
    it->second.changed = m.time;
  if (fresh || it->second.changed > f.stamp) {
    f.stamp = m.time;
    return;
  }
  f.address = p;
  it->second.waiters.push_back(&f);
  m.block(Park::poll);
  f.stamp = m.time;
}

void fail(FaultTable *table, uint32_t edge, uint64_t expected, uint64_t seen, uint64_t launch) {
  Fiber &f = self();
  if (table) {
    const auto sm = static_cast<uint32_t>(f.cta->sm);
    auto *record = reinterpret_cast<FaultRecord *>(table + 1);
    if (table->places > 1)
      record += (launch % 2 * kFaultCtas + sm % kFaultCtas) * kWarpsPerCta + f.warp;
    if (record->valid == 0)
      *record = {1, edge, sm, f.warp, launch, expected, seen};
  }
  active->recordFail(edge, expected, seen);
}

} // namespace

const HostApi kHostApi = {
    [] { return cta().sm % active->per_stream; },
    [] { return static_cast<int>(self().warp); },
    [] { return static_cast<int>(self().lane); },
    [] { return cta().smem; },
    load,
    loadWords,
    store,
    add,
    mbarrierInit,
    mbarrierArrive,
    mbarrierExpect,
    mbarrierTryWait,
    mbarrierPassed,
    copyBulk,
    prefetch,
    collective,
    namedBarrier,
    launchWait,
    launchDependents,
    nowNs,
    clock,
    pollPause,
    fail,
    mark,
    shared,
};

} // namespace megalith::host
