//===- Memory.cpp - HBM shared by the SMs that copy from it ---------------===//

#include "passes/simulate/Memory.h"

#include <algorithm>
#include <limits>

namespace megalith::simulate {

/// Bytes this near to nothing are nothing.
static constexpr double kNothing = 1e-6;

void Memory::moveTo(double now) {
  progress += rate * std::max(now - time, 0.0);
  time = std::max(now, time);
}

/// The rate, after anything that decides it has changed.
void Memory::update() {
  rate = 0;
  if (active == 0)
    return;
  const double slowdown = 1 - polling * (1 - costs.pollSlowdown.at(bytesInFlight, /*holds=*/true));
  rate = std::min(costs.smRate,
                  costs.capacity.at(bytesInFlight, /*holds=*/true) * slowdown / double(active));
}

void Memory::catchUp(Queue &queue) {
  for (size_t i = 0; i < flowing(queue); ++i)
    queue.pieces[i].left -= (progress - queue.served) * shareOf(queue, i);
  queue.served = progress;
}

/// When the SM's next piece is complete.
void Memory::plan(int64_t sm) {
  Queue &queue = queues[size_t(sm)];
  ++queue.version;
  if (queue.pieces.empty())
    return;
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < flowing(queue); ++i)
    least = std::min(least, std::max(queue.pieces[i].left, 0.0) / shareOf(queue, i));
  finishes.push({queue.served + least, sm, queue.version});
}

void Memory::dropStale() {
  while (!finishes.empty() && finishes.top().version != queues[size_t(finishes.top().sm)].version)
    finishes.pop();
}

void Memory::issue(double now, int64_t sm, int64_t bytes, uint64_t token, double slowness) {
  moveTo(now);
  bytesInFlight += double(bytes);
  arrivals.push({now + costs.latency, sm, {double(bytes) * slowness, double(bytes), token}});
  update();
}

void Memory::setPolling(double now, double share) {
  moveTo(now);
  polling = share;
  update();
}

double Memory::next() const {
  double at = arrivals.empty() ? std::numeric_limits<double>::infinity() : arrivals.top().time;
  if (!finishes.empty() && rate > 0)
    at = std::min(at, time + std::max(finishes.top().progress - progress, 0.0) / rate);
  return at;
}

std::vector<uint64_t> Memory::advance(double now) {
  moveTo(now);
  std::vector<uint64_t> landed;
  while (!arrivals.empty() && arrivals.top().time <= now) {
    const Arrival arrival = arrivals.top();
    arrivals.pop();
    Queue &queue = queues[size_t(arrival.sm)];
    catchUp(queue);
    active += queue.pieces.empty();
    queue.pieces.push_back(arrival.piece);
    plan(arrival.sm);
  }
  dropStale();
  while (!finishes.empty() && finishes.top().progress <= progress + kNothing) {
    const int64_t sm = finishes.top().sm;
    Queue &queue = queues[size_t(sm)];
    catchUp(queue);
    for (size_t i = 0; i < flowing(queue);)
      if (queue.pieces[i].left <= kNothing) {
        landed.push_back(queue.pieces[i].token);
        bytesInFlight -= queue.pieces[i].bytes;
        queue.pieces.erase(queue.pieces.begin() + long(i));
      } else {
        ++i;
      }
    active -= queue.pieces.empty();
    plan(sm);
    dropStale();
  }
  update();
  return landed;
}

} // namespace megalith::simulate
