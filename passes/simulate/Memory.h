//===- Memory.h - HBM shared by the SMs that copy from it --------*- C++ -*-===//
//
// A copy is under way for a fixed time, then its bytes flow: all SMs with bytes waiting get the
// same rate, at most an SM's own and together what HBM has for so many bytes in flight. Of one SM's
// pieces the two oldest flow at once, the older one faster.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_PASSES_SIMULATE_MEMORY_H
#define MEGALITH_PASSES_SIMULATE_MEMORY_H

#include "passes/simulate/Costs.h"

#include <cstdint>
#include <deque>
#include <queue>
#include <vector>

namespace megalith::simulate {

class Memory {
public:
  Memory(const Costs &costs, int64_t sms) : costs(costs), queues(size_t(sms)) {}

  /// At `now`, not before any earlier call's. `token` comes back when it has landed; that takes the
  /// bytes `slowness` times as long as others, but for the latency.
  void issue(double now, int64_t sm, int64_t bytes, uint64_t token, double slowness = 1);
  /// When the next copy flows or lands; infinite if none is under way.
  double next() const;
  /// Moves on to `now` = next(); tokens of what has landed.
  std::vector<uint64_t> advance(double now);

  /// Asked for and not landed.
  double inFlight() const { return bytesInFlight; }
  /// Share of SMs that poll words, from now on.
  void setPolling(double now, double share);

private:
  struct Piece {
    double left; ///< bytes, times slowness
    double bytes;
    uint64_t token;
  };
  struct Queue {
    std::deque<Piece> pieces; ///< that flow or wait to, oldest first
    double served = 0;        ///< progress that `pieces` are up to date with
    uint32_t version = 0;
  };
  struct Arrival {
    double time;
    int64_t sm;
    Piece piece;
    bool operator>(const Arrival &other) const { return time > other.time; }
  };
  struct Finish {
    double progress; ///< of an SM when its next piece is complete
    int64_t sm;
    uint32_t version;
    bool operator>(const Finish &other) const { return progress > other.progress; }
  };
  template <class T> using Heap = std::priority_queue<T, std::vector<T>, std::greater<T>>;

  void moveTo(double now);
  void update();
  static size_t flowing(const Queue &queue) { return std::min<size_t>(queue.pieces.size(), 2); }
  /// What piece `i` of those that flow gets of the SM's rate.
  double shareOf(const Queue &queue, size_t i) const {
    if (flowing(queue) == 1)
      return 1;
    return i == 0 ? costs.oldestShare : 1 - costs.oldestShare;
  }
  void catchUp(Queue &queue);
  void plan(int64_t sm);
  void dropStale();

  const Costs &costs;
  std::vector<Queue> queues;
  Heap<Arrival> arrivals;
  Heap<Finish> finishes;
  double time = 0;
  double progress = 0; ///< bytes that an SM that always had some would have got
  double rate = 0;     ///< of progress
  double bytesInFlight = 0, polling = 0;
  int64_t active = 0; ///< SMs with bytes that flow
};

} // namespace megalith::simulate

#endif // MEGALITH_PASSES_SIMULATE_MEMORY_H
