// The machine's random numbers: xorshift64*, seeded through splitmix64.
#pragma once

#include <cstdint>

namespace megalith::host {

class Random {
public:
  explicit Random(uint64_t seed) {
    seed += 0x9E3779B97F4A7C15ull;
    seed = (seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9ull;
    seed = (seed ^ (seed >> 27)) * 0x94D049BB133111EBull;
    state = (seed ^ (seed >> 31)) | 1;
  }

  uint32_t next() {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return static_cast<uint32_t>((state * 0x2545F4914F6CDD1Dull) >> 32);
  }

  /// Uniform in [0, n); n > 0.
  uint32_t below(uint32_t n) {
    return static_cast<uint32_t>((static_cast<uint64_t>(next()) * n) >> 32);
  }

  /// True once in n times on average; n = 0 means never.
  bool oneIn(uint32_t n) { return n != 0 && below(n) == 0; }

private:
  uint64_t state;
};

} // namespace megalith::host
