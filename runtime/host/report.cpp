// Text of faults: who waits for what.
#include "runtime/host/scheduler.h"

#include <map>
#include <set>

namespace megalith::host {

std::string roleOf(int warp) {
  if (warp == 0)
    return "producer";
  if (warp == 1)
    return "poller";
  return warp == kWarpsPerCta - 1 ? "epilogue" : "consumer " + std::to_string(warp - 2);
}

std::string Machine::Impl::where(const Fiber &fiber) const {
  const Cta &cta = *fiber.cta;
  return "launch " + std::to_string(cta.launch) + " (" +
         stateOf(cta, cta.launch).launch->kernel->name + "), sm " + std::to_string(cta.sm) +
         ", warp " + std::to_string(fiber.warp) + " (" + roleOf(fiber.warp) + "), lane " +
         std::to_string(fiber.lane);
}

/// "0-3, 7" of {0, 1, 2, 3, 7}.
static std::string ranges(const std::set<int> &values) {
  std::string text;
  for (auto it = values.begin(); it != values.end();) {
    int first = *it, last = first;
    while (++it != values.end() && *it == last + 1)
      ++last;
    text += (text.empty() ? "" : ", ") + std::to_string(first);
    if (last != first)
      text += "-" + std::to_string(last);
  }
  return text;
}

std::string Machine::Impl::describeWait(const Fiber &fiber) const {
  const Cta &cta = *fiber.cta;
  switch (fiber.park) {
  case Park::mbarrier: {
    const Mbarrier &bar = cta.mbarriers[static_cast<size_t>(fiber.id)];
    return "mbarrier at shared + " + std::to_string(bar.offset) + ", phase " +
           std::to_string(bar.phase) + ": " + std::to_string(bar.pending) + " of " +
           std::to_string(bar.count) + " arrivals and " + std::to_string(bar.bytes) +
           " bytes missing";
  }
  case Park::poll:
    return "poll of " + memory.describe(fiber.address);
  case Park::named_barrier: {
    const NamedBarrier &bar = cta.named[fiber.id];
    return "named barrier " + std::to_string(fiber.id) + ": " + std::to_string(bar.arrived) +
           " of " + std::to_string(bar.threads) + " threads arrived";
  }
  case Park::launch:
    return "launch_wait: launch " + std::to_string(cta.launch - 1) + " is not complete";
  case Park::collective: {
    static const char *const kNames[] = {"warp_sync", "shfl", "shfl_xor", "ballot", "mma_k_loop"};
    const Warp &w = cta.warps[fiber.warp];
    std::set<int> missing;
    for (int lane = 0; lane < 32; ++lane)
      if (!(w.arrived >> lane & 1))
        missing.insert(lane);
    return std::string(kNames[static_cast<int>(w.op)]) + ": waits for lanes " + ranges(missing) +
           ((w.exited & ~w.arrived) != 0 ? ", some of which have left the kernel" : "");
  }
  case Park::none:
  case Park::exited:
    break;
  }
  return "";
}

void Machine::Impl::collectParked() {
  parked.clear();
  for (const auto &cta : ctas)
    if (cta->live)
      for (const Fiber &fiber : cta->fibers)
        if (fiber.park != Park::none && fiber.park != Park::exited)
          parked.push_back({&fiber, describeWait(fiber)});
}

/// One line for each different wait of a role, with the SMs and lanes it stands for.
std::string Machine::Impl::describeParked() const {
  std::map<std::tuple<int, int, std::string>, std::map<int, std::set<int>>> lanes_of;
  for (const Wait &wait : parked)
    lanes_of[{wait.fiber->cta->launch, wait.fiber->warp, wait.text}][wait.fiber->cta->sm].insert(
        wait.fiber->lane);
  std::string text;
  for (const auto &[key, by_sm] : lanes_of) {
    const auto &[launch, warp, what] = key;
    std::map<std::string, std::set<int>> sms_of; // lanes -> SMs
    for (const auto &[sm, lanes] : by_sm)
      sms_of[ranges(lanes)].insert(sm);
    for (const auto &[lanes, sms] : sms_of)
      text += "\n  launch " + std::to_string(launch) + ", sm " + ranges(sms) + ", warp " +
              std::to_string(warp) + " (" + roleOf(warp) + "), lanes " + lanes + ": " + what;
  }
  if (text.empty())
    text = "; no thread waits (a launch with no CTA that may start)";
  return text;
}

} // namespace megalith::host
