// The ring: fixed slots of shared memory that bulk copies fill and consumers drain.
#pragma once

#include "codegen/device/cta.cuh"

namespace megalith {

/// `Slots` slots of `SlotBytes` (at least the largest piece) at byte `Offset`. Its full and its
/// free edge have as many slots; use k of either is slot k % Slots.
template <uint32_t Offset, int Slots, uint32_t SlotBytes> struct Ring {
  static constexpr uint32_t kOffset = Offset, kSlotBytes = SlotBytes;
  static constexpr int kSlots = Slots;
  static constexpr uint32_t kBytes = Slots * SlotBytes;
  static_assert(Offset % 128 == 0 && SlotBytes % 128 == 0, "bulk copies land on 128 B lines");

  template <class Cta> static MEGALITH_DEVICE unsigned char *slot(const Cta &cta, int slot) {
    return cta.smem + kOffset + slot * kSlotBytes;
  }
};

} // namespace megalith
