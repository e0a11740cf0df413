// State of one shared-memory mbarrier: phase, pending arrivals and pending bytes, exactly.
#pragma once

#include "runtime/abi.h"

#include <cstdint>
#include <string>
#include <vector>

namespace megalith::host {

struct Fiber;

struct Mbarrier {
  static constexpr int64_t kNever = -2; ///< before the first wait (-1 is the phase before all)

  uint32_t offset = 0; ///< in the CTA's arena
  int64_t count = 0, pending = 0, bytes = 0;
  int64_t phase = 0;           ///< number of completed phases = number of the current one
  std::vector<int64_t> waited; ///< last phase each thread saw complete
  std::vector<Fiber *> waiters;

  void init(uint32_t at, uint32_t arrivals) {
    offset = at;
    count = pending = arrivals;
    bytes = 0;
    phase = 0;
    waited.assign(kThreadsPerCta, kNever);
    waiters.clear();
  }

  /// Bytes that the current phase waits for. Returns what is wrong, or "".
  std::string expect(uint32_t more) {
    bytes += more;
    return bytes >= kByteLimit ? "more than 2^20 - 1 bytes are pending on one phase" : "";
  }

  /// One arrival that first expects `more` bytes. Returns what is wrong, or "".
  std::string arrive(uint32_t more) {
    std::string wrong = expect(more);
    if (!wrong.empty())
      return wrong;
    if (pending == 0)
      return "arrival beyond the count: all " + std::to_string(count) + " arrivals of phase " +
             std::to_string(phase) + " came already and " + std::to_string(bytes) +
             " bytes are pending";
    --pending;
    return "";
  }

  std::string complete(uint32_t landed) {
    bytes -= landed;
    if (bytes <= -kByteLimit)
      return "more than 2^20 - 1 bytes landed beyond what was expected";
    return "";
  }

  /// Starts the next phase where this one is complete; true if so.
  bool advance() {
    if (pending != 0 || bytes != 0)
      return false;
    ++phase;
    pending = count;
    return true;
  }

  bool done(uint32_t parity) const { return (static_cast<uint32_t>(phase) & 1) != (parity & 1); }

  /// The phase that a wait with this parity means: the current one or the one before.
  int64_t meant(uint32_t parity) const { return done(parity) ? phase - 1 : phase; }

  /// Parity cannot tell phases two apart, so a thread must wait for each phase in turn. Returns
  /// what is wrong, or "".
  std::string checkWait(int thread, uint32_t parity) const {
    int64_t last = waited[static_cast<size_t>(thread)], means = meant(parity);
    if (last == kNever || means == last || means == last + 1)
      return "";
    return "the phase waited for is more than one behind: the thread saw phase " +
           std::to_string(last) + " complete and waits with parity " + std::to_string(parity & 1) +
           ", but the current phase is " + std::to_string(phase);
  }

private:
  static constexpr int64_t kByteLimit = int64_t{1} << 20;
};

} // namespace megalith::host
