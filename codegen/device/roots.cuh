// Divisions and roots that a kernel has one copy of each: correctly rounded they are long, and what
// is not in the instruction cache costs more than a call.
#pragma once

#include "codegen/device/cta.cuh"

namespace megalith {

/// 1 / sqrt(x), as platform::rsqrtf_.
MEGALITH_COLD float inverse_root(float x) {
  return platform::rsqrtf_(x);
}

/// x / d, correctly rounded.
MEGALITH_COLD float quotient(float x, float d) {
  return platform::fdivf_(x, d);
}

} // namespace megalith
