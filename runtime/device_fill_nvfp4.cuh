// Made-up NVFP4 matrices, 16 bytes at a time: the bytes that runtime/packing_nvfp4.h makes of
// quantised models::HashedWeights. Part of device_fill.cuh.
#pragma once

#include "models/weights/block_codec.h"
#include "runtime/nvfp4_bits.h"

namespace megalith {

/// Activations that made-up input scales are calibrated to: kHashedActivationMax of nvfp4.h.
inline constexpr float kFillActivationMax = 8.0f;

/// A quantised block of 16 columns: code of column i in bits 4i.. of `codes`, an e4m3 scale.
struct FillBlock {
  uint64_t codes;
  uint32_t scale; ///< 0: no such block
};

/// The block of (row, 16 * block16) of a segment.
MEGALITH_FILL_FN FillBlock fill_nvfp4_block(const FillSegment &f, int64_t row, int64_t block16) {
  if (row >= f.n || 16 * block16 >= f.k)
    return {0, 0};
  float value[16], amax = 0;
  for (int i = 0; i < 16; ++i) {
    value[i] = fill_value(f, row, 16 * block16 + i);
    const float magnitude = value[i] < 0 ? -value[i] : value[i];
    amax = magnitude > amax ? magnitude : amax;
  }
  const float global = models::nvfp4Global(f.part[0].scale); // of all parts: it depends on k only
  FillBlock block = {0, models::nvfp4Scale(amax, global)};
  const float divisor = models::nvfp4Divisor(block.scale, global);
  for (int i = 0; i < 16; ++i)
    block.codes |= uint64_t{models::e2m1Code(value[i] / divisor)} << 4 * i;
  return block;
}

/// Word `word` of what stands behind the tiles of a matrix.
MEGALITH_FILL_FN uint32_t fill_nvfp4_factor(const FillSegment &f, uint32_t word) {
  const float global = models::nvfp4Global(f.part[0].scale),
              input = models::nvfp4Global(kFillActivationMax);
  const float value = word < 2    ? global * kNvfp4FactorScale
                      : word < 4  ? input * global * kNvfp4FactorScale
                      : word == 4 ? input
                                  : 0.0f;
  return __builtin_bit_cast(uint32_t, value);
}

/// Piece `piece` of an NVFP4 segment: codes, scales or factors.
MEGALITH_FILL_FN FillPiece fill_nvfp4_piece(const FillSegment &f, uint32_t piece) {
  FillPiece out = {{0, 0, 0, 0}};
  // In 16-byte pieces: a chunk is kb * 8 of codes and kb of scales.
  const uint32_t chunk_pieces = 9 * f.kb, blocks = f.chunk16 / f.kb;
  const uint32_t in_chunk = piece % chunk_pieces, chunk = piece / chunk_pieces % 8;
  const uint32_t tile_of_block = piece / (8 * chunk_pieces);
  if (tile_of_block >= blocks * f.strips) {
    for (uint32_t w = 0; w < 4; ++w)
      out.word[w] = fill_nvfp4_factor(f, 4 * (piece - 8 * chunk_pieces * blocks * f.strips) + w);
    return out;
  }
  const int64_t first_row = int64_t{16} * (tile_of_block % f.strips);
  const int64_t first16 = int64_t{chunk} * f.chunk16 + tile_of_block / f.strips * f.kb;
  if (in_chunk >= 8 * f.kb) { // 8 pairs of scales: [g][block of a group][group]
    for (uint32_t i = 0; i < 8; ++i) {
      const uint32_t pair = 8 * (in_chunk - 8 * f.kb) + i, groups = f.kb / f.group;
      const uint32_t g = pair / (f.group * groups), block = pair / groups % f.group;
      const int64_t block16 = first16 + pair % groups * f.group + block;
      for (uint32_t half = 0; half < 2; ++half)
        out.word[i / 2] |=
            nvfp4PackedScale(fill_nvfp4_block(f, first_row + 2 * g + half, block16).scale)
            << (16 * (i % 2) + 8 * half);
    }
    return out;
  }
  FillBlock rows[2] = {{0, 0}, {0, 0}};
  for (uint32_t w = 0; w < 4; ++w) { // a lane and step
    const uint32_t group_words = 32 * f.group, word = 4 * in_chunk + w;
    const uint32_t lane = word % group_words / f.group, step = word % f.group;
    const uint32_t column = 4 * (lane % 4 * f.group + step); // within the group
    if (w == 0 || step == 0)
      for (uint32_t half = 0; half < 2; ++half)
        rows[half] = fill_nvfp4_block(f, first_row + 2 * (lane / 4) + half,
                                      first16 + word / group_words * f.group + column / 16);
    for (uint32_t place = 0; place < 4; ++place)
      for (uint32_t odd = 0; odd < 2; ++odd) {
        const uint32_t at = column % 16 + place / 2 * 2 + odd;
        const uint32_t code = static_cast<uint32_t>(rows[place % 2].codes >> 4 * at) & 15u;
        if (f.group % 2 != 0) {
          out.word[w] |= nvfp4Placed(code, place, odd);
          continue;
        }
        const uint64_t placed = nvfp4PlacedInPair(code, place, odd, w % 2);
        out.word[w / 2 * 2] |= static_cast<uint32_t>(placed);
        out.word[w / 2 * 2 + 1] |= static_cast<uint32_t>(placed >> 32);
      }
  }
  return out;
}

} // namespace megalith
