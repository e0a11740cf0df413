// Between two steps: moves the launch counter on and, if asked to, makes each sequence's best token
// the input of the next step. A launch of its own behind a step's others; its first CTA works.
//
// The launch behind it must not start before it is over (a launch reads its number at once), so the
// first launch of a step has no programmatic edge.
#pragma once

#include "codegen/device/argmax.cuh"

namespace megalith {

namespace detail {

/// The best of a row's candidates `[Sms]`. Whole warp.
template <int Sms>
MEGALITH_DEVICE int32_t choose_token(const unsigned char *candidates, int row, int lane) {
  uint64_t best = 0;
  for (int sm = lane; sm < Sms; sm += 32) {
    const auto words =
        platform::ld_global<u32x2>(candidates + sizeof(Candidate) * (row * Sms + sm));
    best = max_rank(best, rank_of(__builtin_bit_cast(Candidate, words)));
  }
  for (int mask = 1; mask < 32; mask *= 2)
    best = max_rank(best, platform::shfl_xor(best, mask));
  return candidate_of(best).token;
}

/// Sequence `index` goes on with one row, its first: behind the last position of this step, with
/// the token that its last row chose. Its other rows die.
template <int Rows>
MEGALITH_DEVICE void feed_back(StepDescriptor *step, int index, const int32_t *chosen,
                               int32_t *entry) {
  SequenceEntry *sequence = &step->seq[index];
  const int32_t first = platform::ld_global<int32_t>(&sequence->first_row);
  const int32_t rows = platform::ld_global<int32_t>(&sequence->rows);
  const int32_t start = platform::ld_global<int32_t>(&sequence->start) + rows;
  const int32_t token = platform::ld_shared<int32_t>(chosen + first + rows - 1);
  for (int32_t row = first + 1; row < first + rows; ++row)
    platform::st_global<int32_t>(&step->row_seq[row], -1);
  platform::st_global<int32_t>(&step->row_pos[first], start);
  platform::st_global<int32_t>(&step->row_token[first], token);
  platform::st_global<int32_t>(&sequence->rows, 1);
  platform::st_global<int32_t>(&sequence->start, start);
  if (entry)
    platform::st_global<int32_t>(entry + first, token);
}

} // namespace detail

/// The body of the kernel `advance` of a plan with `Rows` rows, whose head ran on `Sms` SMs: adds
/// launch_in_step, the launches of a step, to the counter. With kFeedback: the Candidates
/// `[Rows][Sms]` in buffer slot `Best` choose the next tokens, which also go to the TokenList in
/// slot `Tokens`, unless that is null.
template <int Rows, int Sms, int Best, int Tokens>
MEGALITH_DEVICE void advance_step(const LaunchArgs &args) {
  launch_wait();
  if (platform::sm() != 0)
    return;
  auto *step = const_cast<StepDescriptor *>(args.step);
  const int warp = platform::warp(), lane = platform::lane();
  if (warp == 0 && lane == 0)
    platform::st_global(&step->launch_base,
                        platform::ld_global<uint64_t>(&step->launch_base) + args.launch_in_step);
  if (!(args.flags & kFeedback))
    return;
  auto *chosen = reinterpret_cast<int32_t *>(platform::smem());
  for (int row = warp; row < Rows; row += kWarpsPerCta) {
    const int32_t token =
        detail::choose_token<Sms>(static_cast<const unsigned char *>(args.buffer[Best]), row, lane);
    if (lane == 0)
      platform::st_shared(chosen + row, token);
  }
  platform::cta_sync();
  if (warp != 0)
    return;
  auto *list = static_cast<TokenList *>(args.buffer[Tokens]);
  int32_t *entry = nullptr;
  int32_t steps = 0;
  if (list) {
    steps = platform::ld_global<int32_t>(&list->steps);
    if (steps < platform::ld_global<int32_t>(&list->capacity))
      entry = reinterpret_cast<int32_t *>(list + 1) + int64_t{steps} * Rows;
  }
  platform::warp_sync(); // all have read the count
  if (list && lane == 0)
    platform::st_global(&list->steps, steps + 1);
  if (lane < platform::ld_global<int32_t>(&step->sequences))
    detail::feed_back<Rows>(step, lane, chosen, entry);
}

} // namespace megalith
