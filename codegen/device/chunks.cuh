// The consumers' own polls: each warp brings what it alone needs, by the shortest way from SM to
// SM, without the poller warp and an mbarrier between.
#pragma once

#include "codegen/device/gather.cuh"

namespace megalith {

namespace detail {

/// One warp polls N vectors a lane, vector j `place(j)` words from the lane's `source`, until all
/// are there. Places are known when compiling, so they take neither registers nor instructions.
template <platform::Scope Scope, int N, class Place>
MEGALITH_DEVICE void poll_places(const LaunchArgs &args, const uint32_t *source, Place place,
                                 uint32_t edge, uint64_t n, u32x4 (&value)[N]) {
  Patience patience;
  MEGALITH_UNROLL(1)
  while (true) {
    MEGALITH_UNROLL_ALL
    for (int j = 0; j < N; ++j)
      value[j] = platform::ld_relaxed_v4<Scope>(source + place(j));
    int absent = -1;
    MEGALITH_UNROLL_ALL
    for (int j = 0; j < N; ++j)
      if (!arrived(value[j]))
        absent = j;
    if (platform::all_sync(absent < 0))
      return;
    MEGALITH_UNROLL(1)
    for (uint32_t look = 1;; ++look) {
      const uint32_t *at = source + (absent < 0 ? 0 : place(absent));
      const bool is_there = absent < 0 || arrived(platform::ld_relaxed_v4<Scope>(at));
      if (platform::all_sync(is_there))
        break;
      if (!is_there) {
        if (look % kSweepsPerLook == 0 && patience.lost(args))
          platform::fail(args.fault, edge, 4 * 32 * N, place(absent), n);
        platform::poll_pause(at);
      }
    }
  }
}

/// Vectors of a row that a warp polls, and rows: lane i takes vectors i, i + 32, ... of each row.
template <platform::Scope Scope_, int Width, int Pitch, int Rows, int Vectors> struct ChunkShape {
  static constexpr platform::Scope kScope = Scope_;
  static constexpr int kWidth = Width; // words from row to row of the exchange
  static constexpr int kPitch = Pitch; // bytes from row to row of the target
  static constexpr int kRows = Rows, kEach = Vectors / 32;
  static constexpr int kItems = Rows * kEach; // of a lane
};

/// Vectors that a lane has under way, where rows are whole.
inline constexpr int kChunkBatch = 16;

/// One warp brings the vectors of S from `source` to `target`, both where the first row's begin.
/// Out of line: stages of one shape share it.
template <class S>
MEGALITH_COLD void poll_chunk_rows(const LaunchArgs &args, const uint32_t *source,
                                   unsigned char *target, int lane, uint32_t edge, uint64_t n) {
  static_assert(S::kRows == 1 || kChunkBatch % S::kEach == 0, "a batch is of whole rows");
  const auto place = [](int j) { return j / S::kEach * S::kWidth + 128 * (j % S::kEach); };
  source += 4 * lane;
  target += 16 * lane;
  MEGALITH_UNROLL(1)
  for (int first = 0; first < S::kItems; first += kChunkBatch) {
    u32x4 value[kChunkBatch];
    poll_places<S::kScope>(args, source, place, edge, n, value);
    MEGALITH_UNROLL_ALL
    for (int j = 0; j < kChunkBatch; ++j)
      platform::st_shared(target + j / S::kEach * S::kPitch + 512 * (j % S::kEach), value[j]);
    source += place(kChunkBatch);
    target += kChunkBatch / S::kEach * S::kPitch + 512 * (kChunkBatch % S::kEach);
  }
}

/// Whether so many vectors of so many rows are whole batches.
template <class E, int Vectors>
inline constexpr bool kIsInBatches =
    E::kIsProof &&Vectors % 32 == 0 &&
    kChunkBatch % (Vectors / 32) == 0 && E::Exchange::kCount *Vectors % (32 * kChunkBatch) == 0;

/// Vectors [first, first + Vectors) of all rows of E's words to the rows of X, from vector `to` on.
template <class E, class X, int Vectors, class Cta>
MEGALITH_DEVICE void poll_vectors_of_rows(const Cta &cta, int first, int to) {
  using Exchange = typename E::Exchange;
  const uint32_t *words = set_of<Exchange>(cta, E::kAge) + first_word<E>();
  if constexpr (kIsInBatches<E, Vectors>) {
    using Shape =
        ChunkShape<kScopeOf<Exchange>, Exchange::kWidth, X::kStride, Exchange::kCount, Vectors>;
    platform::mark<platform::verb::Poll, E>();
    poll_chunk_rows<Shape>(cta.args, words + 4 * first, X::row(cta, 0) + 16 * to, cta.lane, E::kId,
                           cta.n);
    platform::mark_end();
  } else {
    constexpr int kItems = Exchange::kCount * Vectors;
    constexpr int kEach = (kItems + 31) / 32, kBatch = kEach < 8 ? kEach : 8;
    const auto exists = [&](int i) {
      return X::kPadded == X::kWidth || 8 * (to + i % Vectors) < X::kWidth;
    };
    gather_words<E, kBatch>(
        cta, kItems, words,
        [&](int i) {
          return exists(i) ? i / Vectors * (Exchange::kWidth / 4) + first + i % Vectors : -1;
        },
        [&](int i, const u32x4 &v) {
          platform::st_shared(X::row(cta, i / Vectors) + 16 * (to + i % Vectors), v);
        });
    if constexpr (X::kPadded != X::kWidth)
      for (int i = cta.lane; i < kItems; i += 32)
        if (!exists(i))
          platform::st_shared(X::row(cta, i / Vectors) + 16 * (to + i % Vectors),
                              u32x4{0, 0, 0, 0});
  }
  await_hop<Exchange>(cta, 4 * first, 4 * Vectors);
  platform::warp_sync();
}

} // namespace detail

/// Consumer warp, after refill<X>: its K chunk of all rows of E's bf16 words, as they arrive, to
/// the rows of X; the chunk's padding becomes zero. No other warp needs them, so none waits for
/// another.
template <class E, class X, class Cta> MEGALITH_DEVICE void poll_chunk(const Cta &cta) {
  using Exchange = typename E::Exchange;
  static_assert(Exchange::kCount <= X::kCount && 2 * kRowWords<E> == X::kWidth);
  constexpr int kVectors = X::kChunk / 8;
  const int first = kVectors * cta.role_warp; // of a row's vectors
  detail::poll_vectors_of_rows<E, X, kVectors>(cta, first, first);
}

/// The same of part `part` of `Parts` parts of K: of the warp's chunk, the columns of so many
/// blocks. X holds one part.
template <class E, class X, int Parts, class Cta>
MEGALITH_DEVICE void poll_chunk_part(const Cta &cta, int part) {
  using Exchange = typename E::Exchange;
  static_assert(Exchange::kCount <= X::kCount && 2 * kRowWords<E> == Parts * X::kWidth);
  static_assert(X::kPadded == X::kWidth);
  constexpr int kVectors = X::kChunk / 8;
  detail::poll_vectors_of_rows<E, X, kVectors>(cta, kVectors * (Parts * cta.role_warp + part),
                                               kVectors * cta.role_warp);
}

/// Consumer: warp r brings row r of E's fp32 words to row r of X, a WordRows; of 16 rows also row
/// r + 8, both together. Or the only warp of a role the only row.
template <class E, class X, class Cta> MEGALITH_DEVICE void poll_own_row(const Cta &cta) {
  using Exchange = typename E::Exchange;
  static_assert(Exchange::kCount <= 2 * kConsumerWarps && Exchange::kWidth % 4 == 0);
  static_assert(Exchange::kCount <= X::kCount && Exchange::kWidth == X::kWidth);
  if (cta.role_warp >= Exchange::kCount)
    return;
  constexpr int kVectors = Exchange::kWidth / 4;
  constexpr int kRows = (Exchange::kCount + kConsumerWarps - 1) / kConsumerWarps; // of a warp
  constexpr int kEach = (kRows * kVectors + 31) / 32;
  const auto row = [&](int i) { return cta.role_warp + i / kVectors * kConsumerWarps; };
  gather_words<E, (kEach < 8 ? kEach : 8)>(
      cta, kRows * kVectors, set_of<Exchange>(cta, E::kAge),
      [&](int i) { return row(i) < Exchange::kCount ? row(i) * kVectors + i % kVectors : -1; },
      [&](int i, const u32x4 &v) {
        platform::st_shared(X::row(cta, row(i)) + 4 * (i % kVectors), v);
      });
  platform::warp_sync();
}

} // namespace megalith
