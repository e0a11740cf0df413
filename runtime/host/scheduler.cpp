#include "runtime/host/scheduler.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <unistd.h>

namespace megalith::host {

Machine::Impl *active = nullptr;

void Machine::Impl::setTemper() {
  temper = {};
  if (options.chaos <= 0) {
    temper.land_one_in = 4;
    temper.preempt_mean = 4096; // only so that spinning threads let others run
    return;
  }
  // Each run has a bias, so that rare orders (all stores last, all copies last, one SM far ahead)
  // become common over seeds.
  static constexpr uint32_t kLand[] = {2, 8, 64, 512, 0};
  static constexpr uint32_t kStores[] = {1, 8, 256, 1 << 20};
  static constexpr uint32_t kLeave[] = {4, 16, 128};
  temper.land_one_in = kLand[random.below(5)];
  temper.max_stores = kStores[random.below(4)];
  temper.leave_warp_one_in = kLeave[random.below(3)] * (options.chaos == 1 ? 4 : 1);
  temper.leave_cta_one_in = kLeave[random.below(3)];
  temper.preempt_mean = options.chaos == 1 ? 256 : 8;
  temper.stale_one_in = 2;
  temper.spurious_one_in = 64;
  static constexpr uint32_t kFar[] = {1, 8, 256};
  temper.max_pieces = 1 + random.below(4);
  temper.shuffle = true;
  if (per_stream < options.sms) // else nothing is far, and seeds give what they always gave
    temper.far_one_in = kFar[random.below(3)];
}

// --- the scheduler ---

static constexpr uint64_t kPatience = 1 << 16, kLivelock = 1 << 29;

void Machine::Impl::makeRunnable(Fiber *fiber) {
  fiber->park = Park::none;
  Cta &cta = *fiber->cta;
  cta.warps[fiber->warp].runnable |= 1u << fiber->lane;
  cta.runnable_warps |= 1u << fiber->warp;
  if (cta.runnable_slot < 0) {
    cta.runnable_slot = static_cast<int>(runnable.size());
    runnable.push_back(&cta);
  }
}

void Machine::Impl::wakeAll(std::vector<Fiber *> &waiters) {
  for (Fiber *fiber : waiters)
    makeRunnable(fiber);
  waiters.clear();
}

void Machine::Impl::removeRunnable(Cta &cta) {
  Cta *last = runnable.back();
  runnable[static_cast<size_t>(cta.runnable_slot)] = last;
  last->runnable_slot = cta.runnable_slot;
  runnable.pop_back();
  cta.runnable_slot = -1;
}

/// One of the bits of a mask that is not 0.
static int pickBit(uint32_t mask, bool any, Random &random) {
  if (!any || (mask & (mask - 1)) == 0)
    return std::countr_zero(mask);
  uint32_t turn = random.next() & 31;
  return (std::countr_zero(std::rotr(mask, static_cast<int>(turn))) + turn) & 31;
}

/// Takes a lane of a warp that has runnable ones off the runnable set.
Fiber *Machine::Impl::pickLane(Cta &cta, int warp) {
  Warp &w = cta.warps[warp];
  int lane = (w.runnable >> w.upcoming & 1) != 0 ? w.upcoming
                                                 : pickBit(w.runnable, temper.shuffle, random);
  w.runnable &= ~(1u << lane);
  if (w.runnable == 0) {
    cta.runnable_warps &= ~(1u << warp);
    if (cta.runnable_warps == 0)
      removeRunnable(cta);
  } else {
    // Stacks of a large machine do not fit a cache, so the next lane's is asked for now.
    w.upcoming = pickBit(w.runnable, temper.shuffle, random);
    auto *stack = static_cast<char *>(cta.fibers[warp * 32 + w.upcoming].stack_pointer);
    for (int line = 0; line < 6; ++line)
      __builtin_prefetch(stack + line * 64, 1);
  }
  return &cta.fibers[warp * 32 + lane];
}

/// The fiber to resume; null where the main stack has to act (start CTAs, or the end).
Fiber *Machine::Impl::next() {
  while (!done) {
    ++time;
    bool pending = !copies.empty() || pending_stores != 0 || !starts.empty();
    // Threads that spin instead of parking must not keep off for ever what they wait for.
    uint64_t idle = time - last_progress;
    if (idle > kLivelock) {
      note("livelock: threads have been resumed " + std::to_string(idle) +
           " times and nothing became visible; does a loop poll without poll_pause?");
      return nullptr;
    }
    if (pending && (random.oneIn(temper.land_one_in) || idle > kPatience)) {
      landOne();
      if (start_now)
        return nullptr;
    }
    if (!runnable.empty()) {
      Cta *cta = current ? current->cta : nullptr;
      int warp = current ? current->warp : 0;
      if (leave || !cta || !cta->runnable_warps || random.oneIn(temper.leave_cta_one_in * 32)) {
        cta = runnable[random.below(static_cast<uint32_t>(runnable.size()))];
        warp = pickBit(cta->runnable_warps, temper.shuffle, random);
        mix(static_cast<uint64_t>(cta->sm) * 32 + static_cast<uint64_t>(warp));
      } else if (!cta->warps[warp].runnable || random.oneIn(temper.leave_warp_one_in)) {
        warp = pickBit(cta->runnable_warps, temper.shuffle, random);
        mix(static_cast<uint64_t>(warp));
      }
      leave = false;
      ++report.switches;
      return pickLane(*cta, warp);
    }
    // The landing above may have been the last: where other processes store too, nobody need wake.
    pending = !copies.empty() || pending_stores != 0 || !starts.empty();
    if (pending) {
      landOne();
      if (start_now)
        return nullptr;
    } else if (!unstick()) {
      return nullptr;
    }
  }
  return nullptr;
}

void Machine::Impl::stackOverflow() {
  fault("a thread's stack overflowed its " + std::to_string(options.stack_bytes) +
        " bytes; raise Options::stack_bytes");
}

void Machine::Impl::switchTo(Fiber *fiber) {
  Fiber *self = current;
  if (fiber == self)
    return;
  void *here;
  void **save = self ? &self->stack_pointer : &main_stack;
  if (self && reinterpret_cast<unsigned char *>(&here) < self->stack_low + 1024)
    stackOverflow();
  current = fiber;
  megalith_switch_stack(save, fiber ? fiber->stack_pointer : main_stack);
}

void Machine::Impl::block(Park park) {
  current->park = park;
  switchTo(next());
}

void Machine::Impl::preemptionPoint() {
  if (temper.preempt_mean == 0 || --preempt_in > 0)
    return;
  preempt_in = 1 + static_cast<int>(random.below(2 * temper.preempt_mean));
  makeRunnable(current);
  leave = random.oneIn(2); // half of the time somewhere else entirely
  switchTo(next());
}

void Machine::Impl::fiberMain() {
  Impl *machine = active;
  Cta &cta = *machine->current->cta;
  const Launch &launch = *machine->stateOf(cta, cta.launch).launch;
  launch.kernel->entry(launch.parameters ? *launch.parameters : launch.args);
  machine->exitFiber();
}

void Machine::Impl::exitFiber() {
  Fiber *self = current;
  Cta &cta = *self->cta;
  if (stacks.overflowed(static_cast<size_t>(cta.sm) * kThreadsPerCta +
                        static_cast<size_t>(self - cta.fibers)))
    stackOverflow();
  self->park = Park::exited;
  cta.warps[self->warp].exited |= 1u << self->lane;
  if (--cta.threads == 0)
    exitCta(cta);
  // Its stack may be reused only once another one is in use, which startCta's being called on the
  // main stack ensures.
  switchTo(next());
  __builtin_unreachable();
}

void Machine::Impl::fault(const std::string &what) {
  if (error.empty())
    error = where(*current) + ": " + what;
  done = true;
  Fiber *self = current;
  current = nullptr;
  megalith_switch_stack(&self->stack_pointer, main_stack);
  __builtin_unreachable();
}

void Machine::Impl::note(const std::string &what) {
  if (error.empty())
    error = what;
  done = true;
}

/// Everybody who polls looks again; false if nobody does.
bool Machine::Impl::wakePollers() {
  for (auto &cta : ctas)
    for (Fiber &fiber : cta->fibers)
      if (cta->live && fiber.park == Park::poll) {
        auto &waiters = watches[memory.find(fiber.address, 1).key() >> 7].waiters;
        std::erase(waiters, &fiber);
        makeRunnable(&fiber);
      }
  return !runnable.empty();
}

/// Gives another process the time to store what is polled for here. False if it had enough.
bool Machine::Impl::awaitOthers() {
  constexpr auto kPatienceWithOthers = std::chrono::seconds(30);
  const auto now = std::chrono::steady_clock::now();
  if (stuck_progress != last_progress) {
    stuck_progress = last_progress;
    stuck_since = now;
  }
  if (now - stuck_since > kPatienceWithOthers)
    return false;
  usleep(100);
  return wakePollers();
}

/// Nothing runs and nothing is in flight. Ways to go on, in order: pollers look once more, as
/// deadlines of a hint would have them; then every wait's deadline passes, so that each reports its
/// edge; then the run is over.
bool Machine::Impl::unstick() {
  bool all_complete = true;
  for (const LaunchState &launch : launches)
    all_complete &= launch.complete;
  if (all_complete)
    return false;
  if (!expired && hasOthers && awaitOthers())
    return true;
  if (!looked_again) {
    looked_again = true;
    time_skip += 3000;
    if (wakePollers())
      return true;
  }
  if (expired)
    return false;
  expired = true;
  collectParked();
  time_skip += uint64_t{1} << 61;
  for (auto &[key, watch] : watches)
    watch.waiters.clear();
  for (auto &cta : ctas)
    if (cta->live) {
      for (Mbarrier &bar : cta->mbarriers)
        bar.waiters.clear();
      for (Fiber &fiber : cta->fibers)
        if (fiber.park == Park::poll || fiber.park == Park::mbarrier)
          makeRunnable(&fiber);
    }
  return !runnable.empty();
}

// --- launches ---

void Machine::Impl::startCta(Cta &cta) {
  cta.start_queued = false;
  cta.launch = cta.next_launch++;
  cta.live = true;
  cta.triggered = false;
  cta.threads = kThreadsPerCta;
  cta.mbarriers.clear();
  cta.copies = 0;
  for (NamedBarrier &bar : cta.named)
    bar = {};
  LaunchState &launch = stateOf(cta, cta.launch);
  ++launch.started;
  // Launch n - 1 let this one start after it had waited for n - 2.
  cta.acquire_time = cta.launch >= 2 ? stateOf(cta, cta.launch - 2).complete_time : 0;
  if (cta.launch >= 1 && !stateOf(cta, cta.launch - 1).complete)
    ++report.early_starts;
  int overlap = 0;
  for (int i = 0; i < static_cast<int>(in_stream); ++i)
    overlap += stateOf(cta, i).started > stateOf(cta, i).exited;
  report.max_overlap = std::max(report.max_overlap, overlap);
  poison(cta.smem, options.smem_bytes & ~1u);
  *launch.launch->kernel->api = &kHostApi;
  mix(0x57A27000u + static_cast<uint64_t>(cta.sm));
  for (int i = 0; i < kThreadsPerCta; ++i) {
    Fiber &fiber = cta.fibers[i];
    size_t index = static_cast<size_t>(cta.sm) * kThreadsPerCta + static_cast<size_t>(i);
    fiber = {};
    fiber.cta = &cta;
    fiber.warp = static_cast<uint8_t>(i / 32);
    fiber.lane = static_cast<uint8_t>(i % 32);
    fiber.stack_low = stacks.low(index);
    fiber.stack_pointer = stacks.prepare(index, fiberMain);
    makeRunnable(&fiber);
  }
  for (Warp &w : cta.warps)
    w.arrived = w.exited = w.upcoming = 0;
}

void Machine::Impl::exitCta(Cta &cta) {
  if (cta.copies != 0)
    fault("the CTA exits with " + std::to_string(cta.copies) +
          " pieces of bulk copies in flight: wait for every copy before the kernel ends");
  flush(cta);
  cta.live = false;
  progressed();
  LaunchState &launch = stateOf(cta, cta.launch);
  if (!cta.triggered)
    ++launch.triggered_or_exited;
  if (++launch.exited == per_stream) {
    launch.complete = true;
    launch.complete_time = ++time;
    wakeAll(launch.waiters);
  }
  queueStarts();
}

void Machine::Impl::triggerDependents(Cta &cta) {
  if (cta.triggered)
    return;
  cta.triggered = true;
  progressed();
  if (++stateOf(cta, cta.launch).triggered_or_exited == per_stream)
    queueStarts();
}

/// Queues every CTA that may start: its SM is free, all CTAs of the previous launch have triggered
/// or exited, and the launch before that is complete, so that at most two overlap.
void Machine::Impl::queueStarts() {
  for (auto &cta : ctas) {
    int n = cta->next_launch;
    if (cta->live || cta->start_queued || n >= static_cast<int>(in_stream))
      continue;
    if (n >= 1 && stateOf(*cta, n - 1).triggered_or_exited != per_stream)
      continue;
    if (n >= 2 && !stateOf(*cta, n - 2).complete)
      continue;
    cta->start_queued = true;
    starts.push_back(cta.get());
  }
}

void Machine::Impl::recordFail(uint32_t edge, uint64_t expected, uint64_t seen) {
  std::string text = "edge " + std::to_string(edge) + ", expected " + std::to_string(expected) +
                     ", saw " + std::to_string(seen);
  if (!expired)
    fault("the kernel gives up: " + text);
  for (Wait &wait : parked)
    if (wait.fiber == current)
      wait.text += " (" + text + ")";
  block(Park::exited);
}

// --- a run ---

void Machine::Impl::reset(llvm::ArrayRef<Launch> list, int streams) {
  random = Random(options.seed);
  per_stream = options.sms / streams;
  in_stream = list.size() / static_cast<size_t>(streams);
  setTemper();
  preempt_in = 1 + static_cast<int>(random.below(256));
  current = nullptr;
  report = {};
  error.clear();
  parked.clear();
  runnable.clear();
  dirty.clear();
  starts.clear();
  copies.clear();
  watches.clear();
  launches.assign(list.size(), {});
  for (size_t i = 0; i < list.size(); ++i)
    launches[i].launch = &list[i];
  old_lines.assign(size_t{1} << 13, {});
  log.clear();
  logText.clear();
  pending_stores = 0;
  time = time_skip = last_progress = stuck_progress = 0;
  stuck_since = std::chrono::steady_clock::now();
  expired = start_now = looked_again = done = leave = false;
  for (auto &cta : ctas) {
    cta->live = cta->start_queued = false;
    cta->launch = -1;
    cta->next_launch = 0;
    cta->copies = 0;
    cta->runnable_warps = 0;
    cta->runnable_slot = cta->dirty_slot = -1;
    cta->stores.clear();
    cta->far.clear();
    for (Warp &w : cta->warps)
      w.runnable = 0;
  }
}

llvm::Expected<RunReport> Machine::Impl::run(llvm::ArrayRef<Launch> list, int streams) {
  auto problem = [](const std::string &text) {
    return llvm::createStringError(llvm::inconvertibleErrorCode(), "%s", text.c_str());
  };
  if (active)
    return problem("host platform: another machine is running; runs must not nest or overlap");
  if (!stacks_ready)
    return problem("host platform: cannot reserve address space for " +
                   std::to_string(options.sms * kThreadsPerCta) + " stacks of " +
                   std::to_string(options.stack_bytes) + " bytes");
  if (std::string wrong = memory.check(); !wrong.empty())
    return problem("host platform: " + wrong);
  for (const Launch &launch : list)
    if (launch.kernel->abi != kAbiVersion || launch.kernel->threads != kThreadsPerCta)
      return problem("host platform: kernel '" + std::string(launch.kernel->name) +
                     "' was compiled for ABI " + std::to_string(launch.kernel->abi) + " with " +
                     std::to_string(launch.kernel->threads) + " threads, this machine has ABI " +
                     std::to_string(kAbiVersion) + " with " + std::to_string(kThreadsPerCta) +
                     " threads; compile the kernel again");
  if (streams < 1 || options.sms % streams || list.size() % static_cast<size_t>(streams))
    return problem("host platform: " + std::to_string(list.size()) + " launches on " +
                   std::to_string(options.sms) + " SMs do not divide into " +
                   std::to_string(streams) + " streams");
  active = this;
  reset(list, streams);
  queueStarts();
  while (!done) {
    if (start_now) {
      start_now = false;
      size_t index = temper.shuffle ? random.below(static_cast<uint32_t>(starts.size())) : 0;
      Cta *cta = starts[index];
      starts.erase(starts.begin() + static_cast<long>(index));
      startCta(*cta);
      continue;
    }
    current = nullptr;
    Fiber *fiber = next();
    if (fiber)
      switchTo(fiber);
    else if (!start_now)
      break;
  }
  active = nullptr;
  current = nullptr;
  if (options.log && streams == 1)
    for (size_t i = 0; i < list.size(); ++i) {
      const LaunchArgs &args = list[i].args;
      logText += "launch " + std::to_string(i) + " " + list[i].kernel->name + " " +
                 std::to_string(args.step ? args.step->launch_base + args.launch_in_step : i) +
                 (list[i].end ? " of " + std::to_string(args.launch_in_step) + " to " +
                                    std::to_string(list[i].end)
                              : "") +
                 "\n" + log.text(static_cast<int>(i));
    }
  if (error.empty()) {
    for (const LaunchState &launch : launches)
      if (!launch.complete)
        error = "deadlock: no thread can run and nothing is in flight" + describeParked();
  }
  if (!error.empty())
    return problem("host platform, seed " + std::to_string(options.seed) + ", chaos " +
                   std::to_string(options.chaos) + ": " + error);
  return report;
}

} // namespace megalith::host
