//===- parallel.h - A loop over threads --------------------------*- C++ -*-===//
#ifndef MEGALITH_MODELS_REFERENCE_PARALLEL_H
#define MEGALITH_MODELS_REFERENCE_PARALLEL_H

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

namespace megalith::reference {

/// body(begin, end) over consecutive parts of 0 .. n, one a thread. Parts write different results,
/// so the outcome does not depend on `threads`.
template <class Body> void parallelFor(int64_t n, unsigned threads, Body &&body) {
  const int64_t parts = std::clamp<int64_t>(threads, 1, std::max<int64_t>(n, 1));
  std::vector<std::thread> workers;
  for (int64_t part = 1; part < parts; ++part)
    workers.emplace_back([&, part] { body(n * part / parts, n * (part + 1) / parts); });
  body(0, n / parts);
  for (std::thread &worker : workers)
    worker.join();
}

} // namespace megalith::reference

#endif // MEGALITH_MODELS_REFERENCE_PARALLEL_H
