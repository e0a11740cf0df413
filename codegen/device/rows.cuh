// Rows of activations in shared memory, and copying them there from global memory.
#pragma once

#include "codegen/device/cta.cuh"

namespace megalith {

/// K padded so that each of 8 warps has a chunk of whole k16 steps: a multiple of 128.
template <int K> inline constexpr int kPaddedWidth = (K + 127) / 128 * 128;

/// Row-major bf16 `[Count][Width]` at byte `Offset`. The stride of 2 * padded + 32 bytes lets a
/// warp read 8 B of 4 lanes x 8 rows (an mma's B operand) without bank conflicts. Whoever fills a
/// row zeroes its columns Width..padded: they meet zero weights but must not be NaN.
template <uint32_t Offset, int Count, int Width> struct Rows {
  static constexpr uint32_t kOffset = Offset;
  static constexpr int kCount = Count, kWidth = Width, kPadded = kPaddedWidth<Width>;
  static constexpr uint32_t kStride = 2 * kPadded + 32;
  static constexpr uint32_t kBytes = Count * kStride;
  static constexpr int kChunk = kPadded / kConsumerWarps; // columns that a consumer warp multiplies
  static_assert(Offset % 16 == 0 && Width % 8 == 0, "rows are copied in 16 B vectors");

  template <class Cta> static MEGALITH_DEVICE unsigned char *row(const Cta &cta, int r) {
    return cta.smem + kOffset + r * kStride;
  }
};

namespace detail {
/// Whether every lane has all its vectors, each of channels that there are.
template <class X> inline constexpr bool kIsEven = X::kChunk % 256 == 0 && X::kPadded == X::kWidth;

/// Vector u of a lane in its warp's chunk of the rows of X: eight channels, counted in the row.
template <class X> MEGALITH_DEVICE int chunk_vector(int warp, int lane, int u) {
  return X::kChunk / 8 * warp + lane + 32 * u;
}
/// Whether there is such a vector.
template <class X> MEGALITH_DEVICE bool has_vector(int warp, int lane, int u) {
  return kIsEven<X> ||
         (lane + 32 * u < X::kChunk / 8 && 8 * chunk_vector<X>(warp, lane, u) < X::kWidth);
}
/// Vectors of a lane.
template <class X> inline constexpr int kChunkVectors = (X::kChunk / 8 + 31) / 32;
} // namespace detail

/// Row-major b32 words `[Count][Width]` at byte `Offset`, for example fp32 logits or bf16 pairs.
template <uint32_t Offset, int Count, int Width> struct WordRows {
  static constexpr uint32_t kOffset = Offset;
  static constexpr int kCount = Count, kWidth = Width;
  static constexpr uint32_t kStride = (4 * Width + 15) / 16 * 16;
  static constexpr uint32_t kBytes = Count * kStride;
  static_assert(Offset % 16 == 0, "rows are 16 B aligned");

  template <class Cta> static MEGALITH_DEVICE uint32_t *row(const Cta &cta, int r) {
    return shared_at<uint32_t>(cta, kOffset + r * kStride);
  }
};

/// One warp zeroes the padding columns of row r of X.
template <class X, class Cta> MEGALITH_DEVICE void clear_padding(const Cta &cta, int r) {
  constexpr int kVectors = (X::kPadded - X::kWidth) / 8;
  if constexpr (kVectors > 0)
    if (cta.lane < kVectors)
      platform::st_shared(X::row(cta, r) + 2 * X::kWidth + 16 * cta.lane, u32x4{0, 0, 0, 0});
}

/// One warp copies a row of kWidth bf16 from immutable global memory (16 B aligned) to row r.
template <class X, class Cta>
MEGALITH_DEVICE void copy_row(const Cta &cta, int r, const unsigned char *source) {
  constexpr int kVectors = X::kWidth / 8, kBatch = 8; // loads in flight
  unsigned char *row = X::row(cta, r);
  for (int first = cta.lane; first < kVectors; first += 32 * kBatch) {
    u32x4 v[kBatch];
    MEGALITH_UNROLL(kBatch)
    for (int u = 0; u < kBatch; ++u)
      if (first + 32 * u < kVectors)
        v[u] = platform::ld_const<u32x4>(source + 16 * (first + 32 * u));
    MEGALITH_UNROLL(kBatch)
    for (int u = 0; u < kBatch; ++u)
      if (first + 32 * u < kVectors)
        platform::st_shared(row + 16 * (first + 32 * u), v[u]);
  }
  clear_padding<X>(cta, r);
}

/// One warp makes row r zero.
template <class X, class Cta> MEGALITH_DEVICE void clear_row(const Cta &cta, int r) {
  for (int i = cta.lane; i < X::kPadded / 8; i += 32)
    platform::st_shared(X::row(cta, r) + 16 * i, u32x4{0, 0, 0, 0});
}

/// Poller: the immutable bf16 matrix `[kCount][kWidth]` in buffer slot `Buffer` to the rows of X.
template <class X, int Buffer, class Cta> MEGALITH_DEVICE void read_rows(const Cta &cta) {
  const auto *source = static_cast<const unsigned char *>(cta.template buffer<Buffer>());
  for (int r = 0; r < X::kCount; ++r)
    copy_row<X>(cta, r, source + 2 * X::kWidth * r);
}

/// Consumer warp, after refill<X>: its K chunk of the immutable bf16 matrix `[kCount][kWidth]` in
/// buffer slot `Buffer` to the rows of X; the chunk's padding becomes zero.
template <class X, int Buffer, class Cta> MEGALITH_DEVICE void read_chunk(const Cta &cta) {
  constexpr int kVectors = X::kChunk / 8;
  const auto *source = static_cast<const unsigned char *>(cta.template buffer<Buffer>());
  for (int i = cta.lane; i < X::kCount * kVectors; i += 32) {
    const int row = i / kVectors, vector = kVectors * cta.role_warp + i % kVectors;
    u32x4 v = {0, 0, 0, 0};
    if (8 * vector < X::kWidth)
      v = platform::ld_const<u32x4>(source + 2 * X::kWidth * row + 16 * vector);
    platform::st_shared(X::row(cta, row) + 16 * vector, v);
  }
  platform::warp_sync();
}

} // namespace megalith
