//===- Workload.cpp - The sequences of a timed step -------------------------===//

#include "tools/bench/Workload.h"

#include "models/weights/philox.h"
#include "runtime/packing.h"

namespace megalith::bench {

int64_t Workload::sharedPages() const {
  return context / runtime::kPagePositions;
}

int64_t Workload::pagesPerSequence() const {
  return (context + further) / runtime::kPagePositions + 1;
}

std::vector<runtime::StepSequence> Workload::sequences(uint32_t seed, int64_t vocab) const {
  std::vector<runtime::StepSequence> result(static_cast<size_t>(rows));
  const int64_t shared = sharedPages();
  for (int64_t s = 0; s < rows; ++s) {
    runtime::StepSequence &sequence = result[static_cast<size_t>(s)];
    sequence.start = static_cast<int32_t>(context);
    // Each its own token, so that rows choose experts of their own.
    sequence.tokens = {static_cast<int32_t>(models::hashedToken(seed, static_cast<uint64_t>(s),
                                                                static_cast<uint64_t>(context),
                                                                static_cast<uint32_t>(vocab)))};
    for (int64_t p = 0; p < shared; ++p)
      sequence.pages.push_back(static_cast<int32_t>(p * histories + content(s)));
    for (int64_t p = shared; p < pagesPerSequence(); ++p)
      sequence.pages.push_back(static_cast<int32_t>(shared * histories + (p - shared) * rows + s));
  }
  return result;
}

Workload fit(Workload workload, int64_t poolPages) {
  while (workload.histories > 0 && workload.pages() > poolPages)
    --workload.histories;
  return workload;
}

} // namespace megalith::bench
