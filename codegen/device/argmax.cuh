// The largest of many logits and where it stands, as one number that can be compared.
//
// A rank orders (logit, token): the larger logit wins, among equals the lower token. -0 equals +0.
// A NaN loses to every number, -inf included, so a row with any number in it never chooses one; a
// row of nothing but NaN chooses token 0. Rank 0 is nobody's: nothing seen yet.
#pragma once

#include "codegen/device/cta.cuh"

namespace megalith {

/// A rank as it lies in memory.
struct Candidate {
  uint32_t order; ///< of the logit: grows with it
  int32_t token;  ///< -1: nobody
};

MEGALITH_DEVICE uint64_t rank_of(Candidate candidate) {
  return candidate.token < 0
             ? 0
             : uint64_t{candidate.order} << 32 | (0xFFFFFFFFu - uint32_t(candidate.token));
}

MEGALITH_DEVICE Candidate candidate_of(uint64_t rank) {
  if (rank == 0)
    return {0, -1};
  return {static_cast<uint32_t>(rank >> 32),
          static_cast<int32_t>(0xFFFFFFFFu - static_cast<uint32_t>(rank))};
}

MEGALITH_DEVICE uint64_t rank_of(float logit, int token) {
  const uint32_t bits = float_to_bits(logit + 0.0f); // -0 becomes +0
  const bool is_nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
  // Negative numbers fall as their bits grow; the least, -inf, becomes 0x007FFFFF.
  const uint32_t order = is_nan ? 0 : bits ^ (bits >> 31 ? 0xFFFFFFFFu : 0x80000000u);
  return rank_of(Candidate{order, token});
}

MEGALITH_DEVICE uint64_t max_rank(uint64_t a, uint64_t b) {
  return a > b ? a : b;
}

} // namespace megalith
