// SMs whose role regions do the same but for places in global memory: one run speaks for all.
#pragma once

#include "passes/verify/Program.h"

#include <optional>
#include <vector>

namespace megalith::verify {

/// All that an SM's steps depend on besides its place in global memory: trip counts that vary with
/// the SM or a symbol, stages it takes part in, and rectangles of shared memory that vary with the
/// SM. Two SMs, in whatever case, with equal signatures take the same steps with the same loop
/// indices and touch the same shared memory.
using Signature = std::vector<int64_t>;

/// Nothing for an SM whose loops take more than kMaxSteps, which Local refuses.
std::optional<Signature> signatureOf(const Program &program, const Valuation &valuation,
                                     int64_t sm);

} // namespace megalith::verify
