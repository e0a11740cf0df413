// The sums of an m-tile, from the consumer warps, which have a chunk of K each, to the epilogue,
// which adds the chunks in their order.
#pragma once

#include "codegen/device/trace.cuh"

namespace megalith {

/// A lane's four sums of a 16 x 8 tile, as mma leaves them, g = lane / 4, t = lane % 4:
/// {(g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)}. Rows g and g + 8 are the two output rows
/// of the tile's strip g; the other index is the activation row (or pair).
struct Fragment {
  float v[4];
};

/// The sums of two column tiles: activation rows (or pairs) 0..7 and 8..15.
struct Fragments {
  Fragment low, high;
};

/// The sums of the two m-tiles of a whole slice, of the only row.
struct SliceSums {
  Fragment first, rest;
};

/// A warp's chunk while its products are added: those of the even and of the odd k16 steps of each
/// block apart, so that fewer wait for others. Together they are the chunk's sum.
struct ChunkSum {
  float v[2][4];
};

/// The same of two column tiles.
struct ChunkSums {
  ChunkSum low, high;
};

/// The sum of a chunk whose products have all been added.
MEGALITH_DEVICE Fragment whole(const ChunkSum &sum) {
  Fragment whole;
  MEGALITH_UNROLL_ALL
  for (int i = 0; i < 4; ++i)
    whole.v[i] = sum.v[0][i] + sum.v[1][i];
  return whole;
}
MEGALITH_DEVICE Fragments whole(const ChunkSums &sums) {
  return {whole(sums.low), whole(sums.high)};
}

struct alignas(8) FloatPair {
  float x, y;
};

/// The 8 warps' chunk sums on their way to the epilogue: fp32 `[Slots][8 warps][Tiles][16][8]`,
/// with a column tile for every 8 activation rows. Of one row a slot begins with what its column
/// has: `[strips][8 warps]` pairs of both outputs of a strip, strips kStripBytes apart.
template <uint32_t Offset, int Slots, int Tiles = 1> struct Part {
  static constexpr uint32_t kOffset = Offset;
  static constexpr int kSlots = Slots, kTiles = Tiles;
  static constexpr uint32_t kTileBytes = 16 * 8 * 4, kChunkBytes = Tiles * kTileBytes;
  static constexpr uint32_t kSlotBytes = kConsumerWarps * kChunkBytes;
  static constexpr uint32_t kBytes = Slots * kSlotBytes;
  static constexpr uint32_t kStripBytes = 8 * kConsumerWarps + 16; // lanes meet in no bank
  static_assert(Offset % 16 == 0);

  /// Of one row: where chunk 0 of `strip` is.
  template <class Cta>
  static MEGALITH_DEVICE unsigned char *strip(const Cta &cta, int slot, int strip) {
    return cta.smem + kOffset + slot * kSlotBytes + strip * kStripBytes;
  }

  /// Where this lane's rows g of chunk `chunk` begin; rows g + 8 lie 256 B further, the second
  /// column tile kTileBytes.
  template <class Cta>
  static MEGALITH_DEVICE unsigned char *at(const Cta &cta, int slot, int chunk) {
    return cta.smem + kOffset + slot * kSlotBytes + chunk * kChunkBytes + 8 * cta.lane;
  }
};

namespace detail {
MEGALITH_DEVICE void store_fragment(unsigned char *at, const Fragment &sum) {
  platform::st_shared(at, FloatPair{sum.v[0], sum.v[1]});
  platform::st_shared(at + 256, FloatPair{sum.v[2], sum.v[3]});
}

/// Of the only row: strips `first`.. of this warp's chunk.
template <class P, class Cta>
MEGALITH_DEVICE void store_column(const Cta &cta, int slot, int first, const Fragment &sum) {
  if (cta.lane % 4 == 0)
    platform::st_shared(P::strip(cta, slot, first + cta.lane / 4) + 8 * cta.role_warp,
                        FloatPair{sum.v[0], sum.v[2]});
}
} // namespace detail

/// Consumer warp: stores its chunk's sums in an acquired slot of P.
template <class P, class Cta>
MEGALITH_DEVICE void store_part(const Cta &cta, int slot, const Fragment &sum) {
  static_assert(P::kTiles == 1);
  if constexpr (Cta::Config::kRows == 1)
    detail::store_column<P>(cta, slot, 0, sum);
  else
    detail::store_fragment(P::at(cta, slot, cta.role_warp), sum);
}
template <class P, class Cta>
MEGALITH_DEVICE void store_part(const Cta &cta, int slot, const Fragments &sum) {
  static_assert(P::kTiles == 2);
  unsigned char *at = P::at(cta, slot, cta.role_warp);
  detail::store_fragment(at, sum.low);
  detail::store_fragment(at + P::kTileBytes, sum.high);
}
template <class P, class Cta>
MEGALITH_DEVICE void store_part(const Cta &cta, int slot, const ChunkSum &sum) {
  store_part<P>(cta, slot, whole(sum));
}
template <class P, class Cta>
MEGALITH_DEVICE void store_part(const Cta &cta, int slot, const ChunkSums &sums) {
  store_part<P>(cta, slot, whole(sums));
}
/// Of the only row, two m-tiles: strips 0..7 and 8..15.
template <class P, class Cta>
MEGALITH_DEVICE void store_part(const Cta &cta, int slot, const ChunkSum &sum,
                                const ChunkSum &rest) {
  static_assert(Cta::Config::kRows == 1 && 16 * P::kStripBytes <= P::kSlotBytes);
  detail::store_column<P>(cta, slot, 0, whole(sum));
  detail::store_column<P>(cta, slot, 8, whole(rest));
}

namespace detail {
MEGALITH_DEVICE Fragment add_chunks(const unsigned char *at, uint32_t chunk_bytes) {
  Fragment sum;
  MEGALITH_UNROLL(8)
  for (int chunk = 0; chunk < kConsumerWarps; ++chunk) {
    const auto low = platform::ld_shared<FloatPair>(at + chunk * chunk_bytes);
    const auto high = platform::ld_shared<FloatPair>(at + chunk * chunk_bytes + 256);
    sum =
        chunk == 0
            ? Fragment{{low.x, low.y, high.x, high.y}}
            : Fragment{{sum.v[0] + low.x, sum.v[1] + low.y, sum.v[2] + high.x, sum.v[3] + high.y}};
  }
  return sum;
}
/// Out of line: every stage's epilogue has one.
MEGALITH_COLD Fragment sum_chunks_at(const unsigned char *at, uint32_t chunk_bytes) {
  return add_chunks(at, chunk_bytes);
}

struct alignas(16) TwoChunks {
  FloatPair sum[2];
};
/// Of the only row: the chunks of the strip at `at`.
MEGALITH_DEVICE FloatPair add_strip(const unsigned char *at) {
  TwoChunks chunks[kConsumerWarps / 2];
  MEGALITH_UNROLL_ALL
  for (int i = 0; i < kConsumerWarps / 2; ++i)
    chunks[i] = platform::ld_shared<TwoChunks>(at + sizeof(TwoChunks) * i);
  FloatPair sum = chunks[0].sum[0];
  MEGALITH_UNROLL_ALL
  for (int i = 1; i < kConsumerWarps; ++i) {
    const FloatPair &next = chunks[i / 2].sum[i % 2];
    sum = {sum.x + next.x, sum.y + next.y};
  }
  return sum;
}

/// The only row is column 0.
MEGALITH_DEVICE Fragment column_of(const FloatPair &sum) {
  return {{sum.x, 0, sum.y, 0}};
}
} // namespace detail

/// Epilogue warp: the chunks of a slot added in ascending order: a Fragment, or Fragments where P
/// has two column tiles.
template <class P, class Cta> MEGALITH_DEVICE auto sum_chunks(const Cta &cta, int slot) {
  const unsigned char *at = P::at(cta, slot, 0);
  if constexpr (Cta::Config::kRows == 1)
    return detail::column_of(detail::add_strip(P::strip(cta, slot, cta.lane / 4)));
  else if constexpr (P::kTiles == 1)
    return detail::sum_chunks_at(at, P::kChunkBytes);
  else
    return Fragments{detail::sum_chunks_at(at, P::kChunkBytes),
                     detail::sum_chunks_at(at + P::kTileBytes, P::kChunkBytes)};
}

/// Epilogue warp of the only row: the same of both m-tiles of a whole slice.
template <class P, class Cta> MEGALITH_DEVICE SliceSums sum_slice(const Cta &cta, int slot) {
  const int g = cta.lane / 4;
  return {detail::column_of(detail::add_strip(P::strip(cta, slot, g))),
          detail::column_of(detail::add_strip(P::strip(cta, slot, 8 + g)))};
}

namespace detail {
/// Of all column tiles.
template <class P> MEGALITH_DEVICE auto add_all_chunks(const unsigned char *at) {
  if constexpr (P::kTiles == 1)
    return add_chunks(at, P::kChunkBytes);
  else
    return Fragments{add_chunks(at, P::kChunkBytes),
                     add_chunks(at + P::kTileBytes, P::kChunkBytes)};
}

template <class Full, class Free, class P>
MEGALITH_COLD auto take_over(const LaunchArgs &args, uint64_t n, uint32_t use) {
  const Called cta = {args, n};
  const int slot = use % P::kSlots;
  platform::mark<platform::verb::Wait, Full>();
  await_phase<Full>(cta, slot, use / P::kSlots & 1, use);
  platform::mark_end();
  const auto sum = add_all_chunks<P>(P::at(cta, slot, 0));
  platform::mark<platform::verb::Release, Free>();
  arrive<Free>(cta, slot);
  platform::mark_end();
  return sum;
}
} // namespace detail

/// Epilogue warp of the only row: waits for Full, adds the chunks of a strip, which may be another
/// in each lane, and releases the slot (edge Free). In line: what comes behind the wait is a few
/// instructions, and a return would be to some that the cache does not have.
template <class Full, class Free, class P, class Cta>
MEGALITH_DEVICE FloatPair take_strip(Cta &cta, int strip) {
  int slot;
  if constexpr (kTraced<typename Cta::Config>)
    slot = timed_wait<Full>(cta);
  else
    slot = wait<Full>(cta);
  const FloatPair sum = detail::add_strip(P::strip(cta, slot, strip));
  release<Free>(cta);
  return sum;
}
/// The same, times an NVFP4 matrix's factors.
template <class Full, class Free, class P, class Cta>
MEGALITH_DEVICE FloatPair take_strip(Cta &cta, int strip, const FloatPair &factors) {
  const FloatPair sum = take_strip<Full, Free, P>(cta, strip);
  return {sum.x * factors.x, sum.y * factors.y};
}

/// Epilogue warp: waits for Full, adds the slot's chunks as sum_chunks does and releases the slot
/// (edge Free); out of line, if there are several rows.
template <class Full, class Free, class P, class Cta> MEGALITH_DEVICE auto take_part(Cta &cta) {
  static_assert(Full::kSlots == P::kSlots && Free::kSlots == P::kSlots);
  if constexpr (Cta::Config::kRows == 1) {
    return detail::column_of(take_strip<Full, Free, P>(cta, cta.lane / 4));
  } else {
    const Use use = cta.template next_use<Full::kId, P::kSlots>();
    cta.template count_uses<Free::kId, P::kSlots>(1);
    return detail::take_over<Full, Free, P>(cta.args, cta.n, use.number);
  }
}

} // namespace megalith
