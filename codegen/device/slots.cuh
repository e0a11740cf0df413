// Buffers of the arena whose bytes a stage lays out itself.
#pragma once

#include "codegen/device/cta.cuh"

namespace megalith {

/// `Slots` copies of `Count` rows of `RowBytes`, from byte `Offset` of the arena on.
template <uint32_t Offset, int Count, uint32_t RowBytes, int Slots = 1> struct SlottedRows {
  static constexpr uint32_t kOffset = Offset, kRowBytes = RowBytes;
  static constexpr int kCount = Count, kSlots = Slots;
  static constexpr uint32_t kSlotBytes = Count * RowBytes, kBytes = Slots * kSlotBytes;
  static_assert(Offset % 16 == 0 && RowBytes % 4 == 0);

  template <class Cta> static MEGALITH_DEVICE unsigned char *row(const Cta &cta, int slot, int r) {
    return cta.smem + kOffset + slot * kSlotBytes + r * kRowBytes;
  }
};

} // namespace megalith
