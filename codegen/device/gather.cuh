// One warp gathers scattered 16-byte items of an exchange, many loads in flight: what `poll_block`
// does for whole blocks of words, for the lists of items that attention and merge need.
#pragma once

#include "codegen/device/exchange.cuh"

namespace megalith {

/// fp32 values that an epoch word carries.
inline constexpr int kEpochPayload = 3;
/// Sweeps from one look at the clock to the next.
inline constexpr uint32_t kSweepsPerLook = 64;

namespace detail {
/// A look at the clock in a poll that goes on: fails where patience is lost, else returns since
/// when it is tried. Out of line, as await_slowly.
MEGALITH_COLD uint64_t look_at_clock(const LaunchArgs &args, uint64_t since, uint32_t edge,
                                     uint32_t expected, uint64_t seen, uint64_t n) {
  Patience patience = {since};
  if (patience.lost(args))
    platform::fail(args.fault, edge, expected, seen, n);
  return patience.since;
}
} // namespace detail

/// Brings items 0 .. count-1. Lane i takes items i, i + 32, ..., `Batch` of them at a time: a sweep
/// reads them all, without conditions, and ends in one vote; where a lane has no item it reads the
/// first place and thinks nothing of it. E names the edge in the PTX and in a missed deadline
/// (expected = count, seen = the place of an item that is not there).
///
/// With one row lane 0 alone watches its item before the first sweep: what all SMs sweep over and
/// over is in the way of the stores that they wait for. On an H200 a layer of Muse Spark Open takes
/// 0.9 us less so, one of Qwen3-30B-A3B 1.3; with 8 rows it takes 5 % more.
///   source(i)   place of item i, in items of V from `base`; negative: there is no such item
///   load(p)     an item; ready(v): whether it has been written
///   take(i, v)  disposes of it
template <class E, int Batch, class V, class Cta, class Source, class Load, class Ready, class Take>
MEGALITH_DEVICE void gather_items(const Cta &cta, int count, const V *base, Source source,
                                  Load load, Ready ready, Take take) {
  platform::mark<platform::verb::Poll, E>();
  for (int batch = 0; batch < count; batch += 32 * Batch) {
    const int first = batch + cta.lane;
    int from[Batch]; // once, not in each sweep
    MEGALITH_UNROLL_ALL
    for (int j = 0; j < Batch; ++j)
      from[j] = first + 32 * j < count ? source(first + 32 * j) : -1;
    V value[Batch];
    Patience patience;
    MEGALITH_UNROLL(1)
    while (Cta::Config::kRows == 1) {
      const bool is_there = cta.lane != 0 || from[0] < 0 || ready(load(base + from[0]));
      if (platform::all_sync(is_there))
        break;
      if (!is_there) {
        if (patience.lost(cta))
          platform::fail(cta.args.fault, E::kId, count, from[0], cta.n);
        platform::poll_pause(base + from[0]);
      }
    }
    MEGALITH_UNROLL(1)
    for (uint32_t sweep = 1;; ++sweep) {
      MEGALITH_UNROLL_ALL
      for (int j = 0; j < Batch; ++j)
        value[j] = load(base + (from[j] < 0 ? 0 : from[j]));
      int absent = -1;
      MEGALITH_UNROLL_ALL
      for (int j = 0; j < Batch; ++j)
        if (!ready(value[j]) && from[j] >= 0)
          absent = from[j];
      if (platform::all_sync(absent < 0))
        break;
      if (absent >= 0) {
        if (sweep % kSweepsPerLook == 0 && patience.lost(cta))
          platform::fail(cta.args.fault, E::kId, count, absent, cta.n);
        platform::poll_pause(base + absent);
      }
    }
    MEGALITH_UNROLL_ALL
    for (int j = 0; j < Batch; ++j)
      if (from[j] >= 0)
        take(first + 32 * j, value[j]);
  }
  platform::mark_end();
}

namespace detail {
/// See gather_registers below; `edge` and `n` for a missed deadline.
template <platform::Scope Scope, int N, class Place>
MEGALITH_DEVICE void gather_registers(const LaunchArgs &args, uint32_t edge, uint64_t n,
                                      const uint32_t *base, Place place, u32x4 (&value)[N],
                                      bool is_proof = true) {
  Patience patience;
  MEGALITH_UNROLL(1)
  for (uint32_t sweep = 1;; ++sweep) {
    MEGALITH_UNROLL_ALL
    for (int j = 0; j < N; ++j)
      value[j] = platform::ld_relaxed_v4<Scope>(base + 4 * (place(j) < 0 ? 0 : place(j)));
    int absent = -1;
    MEGALITH_UNROLL_ALL
    for (int j = 0; j < N; ++j)
      if (is_proof && place(j) >= 0 && !arrived(value[j]))
        absent = place(j);
    if (platform::all_sync(absent < 0))
      break;
    if (absent >= 0) {
      if (sweep % kSweepsPerLook == 0 && patience.lost(args))
        platform::fail(args.fault, edge, 4 * N, 4 * absent, n);
      platform::poll_pause(base + 4 * absent);
    }
  }
}
} // namespace detail

/// Vectors of four words that came for a lane; 4 or 8, so that polls share code.
template <int N> struct LaneVectors { u32x4 v[N]; };
inline constexpr int kMostOfLane = 8;
/// What `count` vectors come in.
MEGALITH_DEVICE constexpr int lane_vectors(int count) {
  return count <= 4 ? 4 : kMostOfLane;
}

/// Where a lane's vectors lie: vector j at word j / 2 * far + j % 2 * near from its `source`.
struct LanePlaces {
  int near, far;
};

namespace detail {
/// Where vectors lane, lane + 32, ... of a row lie.
inline constexpr LanePlaces kStridesOfLane = {128, 256};
/// Where vector j of a lane lies behind its first.
MEGALITH_DEVICE int place_in(const LanePlaces &places, int j) {
  return j / 2 * places.far + j % 2 * places.near;
}
/// How many of those of kStridesOfLane are below `end`.
MEGALITH_DEVICE int vectors_of_lane(int end, int lane) {
  return end > lane ? (end - lane + 31) / 32 : 0;
}

MEGALITH_DEVICE uint32_t larger(uint32_t a, uint32_t b) {
  return a > b ? a : b;
}
/// The largest word, kEmptyWord if one has not arrived: by halves, so that few comparisons wait for
/// others.
template <int N> MEGALITH_DEVICE uint32_t largest(const u32x4 (&value)[N]) {
  uint32_t most[N];
  MEGALITH_UNROLL_ALL
  for (int j = 0; j < N; ++j)
    most[j] = larger(larger(value[j].x, value[j].y), larger(value[j].z, value[j].w));
  MEGALITH_UNROLL_ALL
  for (int step = 1; step < N; step *= 2)
    MEGALITH_UNROLL_ALL
  for (int j = 0; j + step < N; j += 2 * step)
    most[j] = larger(most[j], most[j + step]);
  return most[0];
}

/// One warp waits for `count` vectors of each lane (up to N; lanes may differ), all of them under
/// way together; the others are zero. Out of line, and by few comparisons: on an H200 a layer of
/// Muse Spark Open at one row takes 1.7 us less than with gather_registers for its pairs.
template <platform::Scope Scope, int N>
MEGALITH_COLD LaneVectors<N> poll_lane(const LaunchArgs &args, const uint32_t *source,
                                       LanePlaces places, int count, uint32_t edge, uint64_t n) {
  LaneVectors<N> lane;
  MEGALITH_UNROLL_ALL
  for (u32x4 &v : lane.v)
    v = {0, 0, 0, 0};
  Patience patience;
  MEGALITH_UNROLL(1)
  for (uint32_t sweep = 1;; ++sweep) {
    MEGALITH_UNROLL_ALL
    for (int j = 0; j < N; ++j)
      if (j < count)
        lane.v[j] = platform::ld_relaxed_v4<Scope>(source + place_in(places, j));
    if (platform::all_sync(largest(lane.v) != kEmptyWord))
      return lane;
    int absent = -1;
    MEGALITH_UNROLL_ALL
    for (int j = 0; j < N; ++j)
      absent = arrived(lane.v[j]) ? absent : j;
    if (absent >= 0) {
      if (sweep % kSweepsPerLook == 0 && patience.lost(args))
        platform::fail(args.fault, edge, 4 * count, place_in(places, absent), n);
      platform::poll_pause(source + place_in(places, absent));
    }
  }
}
} // namespace detail

/// One warp brings N vectors of four words a lane to registers, all of them under way together.
/// place(j) is where vector j of this lane lies, in vectors from `base`; negative: there is none,
/// and value[j] means nothing.
template <class E, int N, class Cta, class Place>
MEGALITH_DEVICE void gather_registers(const Cta &cta, const uint32_t *base, Place place,
                                      u32x4 (&value)[N]) {
  platform::mark<platform::verb::Poll, E>();
  detail::gather_registers<kScopeOf<typename E::Exchange>>(cta.args, E::kId, cta.n, base, place,
                                                           value, E::kIsProof);
  platform::mark_end();
}

/// One warp brings N words a lane to registers: word[j] is that at from[j], all of them under way
/// together.
template <class E, int N, class Cta>
MEGALITH_DEVICE void gather_lane_words(const Cta &cta, const uint32_t *const (&from)[N],
                                       uint32_t (&word)[N]) {
  platform::mark<platform::verb::Poll, E>();
  uint64_t since = 0;
  MEGALITH_UNROLL(1)
  for (uint32_t sweep = 1;; ++sweep) {
    MEGALITH_UNROLL_ALL
    for (int j = 0; j < N; ++j)
      word[j] = platform::ld_relaxed<kScopeOf<typename E::Exchange>, uint32_t>(from[j]);
    bool is_absent = false;
    MEGALITH_UNROLL_ALL
    for (int j = 0; j < N; ++j)
      is_absent |= E::kIsProof && word[j] == kEmptyWord;
    if (platform::all_sync(!is_absent))
      break;
    if (is_absent) {
      const uint32_t *absent = from[0];
      for (int j = 1; j < N; ++j)
        if (word[j] == kEmptyWord)
          absent = from[j];
      if (sweep % kSweepsPerLook == 0)
        since = detail::look_at_clock(cta.args, since, E::kId, N, kEmptyWord, cta.n);
      platform::poll_pause(absent);
    }
  }
  platform::mark_end();
}

/// Gathers vectors of four words: `base` is 16 B aligned, source(i) counts vectors from there.
template <class E, int Batch, class Cta, class Source, class Take>
MEGALITH_DEVICE void gather_words(const Cta &cta, int count, const uint32_t *base, Source source,
                                  Take take) {
  gather_items<E, Batch>(
      cta, count, reinterpret_cast<const u32x4 *>(base), source,
      [](const u32x4 *p) {
        return platform::ld_relaxed_v4<kScopeOf<typename E::Exchange>>(
            reinterpret_cast<const uint32_t *>(p));
      },
      [](const u32x4 &v) { return !E::kIsProof || detail::arrived(v); }, take);
}

/// A warp's share of `count` epoch words of this launch that lie one after another from `base`:
/// those from `first` on, Stride apart, Each at most, to the same places from `target` on.
template <class E, int Each, int Stride, class Cta>
MEGALITH_DEVICE void gather_own_epochs(const Cta &cta, int first, int count, const U128 *base,
                                       unsigned char *target) {
  const uint32_t epoch = epoch_of(cta);
  const int left = count - first; // item j of this lane is there if left > j Stride
  base += first;
  platform::mark<platform::verb::Poll, E>();
  U128 value[Each];
  uint64_t since = 0;
  MEGALITH_UNROLL(1)
  for (uint32_t sweep = 1;; ++sweep) {
    MEGALITH_UNROLL_ALL
    for (int j = 0; j < Each; ++j) // where it has none, a lane reads a place that is there
      value[j] =
          platform::ld_relaxed<platform::Scope::gpu, U128>(base + (left > j * Stride ? j * Stride
                                                                   : left > 0        ? 0
                                                                                     : -first));
    uint32_t wrong = 0;
    MEGALITH_UNROLL_ALL
    for (int j = 0; j < Each; ++j)
      wrong |= left > j * Stride ? value[j].w ^ epoch : 0;
    if (platform::all_sync(wrong == 0))
      break;
    if (wrong != 0) {
      const U128 *absent = base;
      for (int j = 1; j < Each; ++j)
        if (left > j * Stride && value[j].w != epoch)
          absent = base + j * Stride;
      if (sweep % kSweepsPerLook == 0)
        since = detail::look_at_clock(cta.args, since, E::kId, count, first, cta.n);
      platform::poll_pause(absent);
    }
  }
  MEGALITH_UNROLL_ALL
  for (int j = 0; j < Each; ++j)
    if (left > j * Stride)
      platform::st_shared(target + 16 * (first + j * Stride), value[j]);
  platform::mark_end();
}

/// Gathers `count` epoch words of this launch that lie one after another from `base`, of `Most`
/// that have their place there: a lane reads all its items of a batch, those behind the last too.
template <class E, int Batch, int Most, class Cta, class Take>
MEGALITH_DEVICE void gather_epochs(const Cta &cta, int count, const U128 *base, Take take) {
  static_assert(Most % 32 == 0 && 32 * Batch <= Most);
  const uint32_t epoch = epoch_of(cta);
  platform::mark<platform::verb::Poll, E>();
  MEGALITH_UNROLL(1)
  for (int batch = 0; batch < count; batch += 32 * Batch) {
    // The last batch overlaps the one before rather than reach beyond the place.
    const int first = (batch < Most - 32 * Batch ? batch : Most - 32 * Batch) + cta.lane;
    const int left = count - first; // item j of this lane is there if left > 32 j
    const U128 *words = base + first;
    U128 value[Batch];
    Patience patience;
    MEGALITH_UNROLL(1)
    for (uint32_t sweep = 1;; ++sweep) {
      // Unconditional: behind a branch each load waits for the one before.
      MEGALITH_UNROLL_ALL
      for (int j = 0; j < Batch; ++j)
        value[j] = platform::ld_relaxed<platform::Scope::gpu, U128>(words + 32 * j);
      uint32_t wrong = 0;
      MEGALITH_UNROLL_ALL
      for (int j = 0; j < Batch; ++j)
        wrong |= E::kIsProof && left > 32 * j ? value[j].w ^ epoch : 0;
      if (platform::all_sync(wrong == 0))
        break;
      if (wrong != 0) {
        const U128 *absent = base;
        MEGALITH_UNROLL_ALL
        for (int j = 0; j < Batch; ++j)
          if (left > 32 * j && value[j].w != epoch)
            absent = words + 32 * j;
        if (sweep % kSweepsPerLook == 0 && patience.lost(cta))
          platform::fail(cta.args.fault, E::kId, count, absent - base, cta.n);
        platform::poll_pause(absent);
      }
    }
    MEGALITH_UNROLL_ALL
    for (int j = 0; j < Batch; ++j)
      if (left > 32 * j)
        take(first + 32 * j, value[j]);
  }
  platform::mark_end();
}

} // namespace megalith
