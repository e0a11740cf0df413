// The division that a kernel has one copy of: correctly rounded, of any numbers, it is long, and
// what is not in the instruction cache costs more than a call.
#pragma once

#include "codegen/device/cta.cuh"

namespace megalith {

/// x / d, correctly rounded.
MEGALITH_COLD float quotient(float x, float d) {
  return platform::fdivf_(x, d);
}

} // namespace megalith
