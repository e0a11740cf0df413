#include "runtime/host/mma.h"

#include <cmath>
#include <cstring>

namespace megalith::host {

using platform::MmaLoop;
typedef float Row __attribute__((vector_size(32))); // one row of C: 8 columns

bool mmaKLoop(const MmaLoop *const loops[32], float *const acc[32]) {
  const MmaLoop &l0 = *loops[0];
  for (int lane = 1; lane < 32; ++lane) {
    const MmaLoop &l = *loops[lane];
    if (l.steps != l0.steps || l.first != l0.first || l.every != l0.every || l.j0 != l0.j0 ||
        l.a_stride != l0.a_stride || l.b_stride != l0.b_stride)
      return false;
  }
  // C as 16 rows of 8 columns; lane 4 g + t holds columns 2t, 2t + 1 of rows g and g + 8.
  Row c[16];
  for (int lane = 0; lane < 32; ++lane) {
    int g = lane / 4, t = lane % 4;
    for (int j = 0; j < 2; ++j) {
      c[g][2 * t + j] = acc[lane][j];
      c[g + 8][2 * t + j] = acc[lane][2 + j];
    }
  }
  for (int s = l0.first; s < l0.steps; s += l0.every) {
    // Rows and columns said to be absent hold NaN: nothing may come of them.
    float a[16][16];
    Row b[16];
    for (int i = 0; i < 16; ++i)
      for (int j = 0; j < 16; ++j)
        a[i][j] = NAN;
    for (Row &row : b)
      for (int j = 0; j < 8; ++j)
        row[j] = NAN;
    for (int lane = 0; lane < 32; ++lane) {
      const MmaLoop &l = *loops[lane];
      int g = lane / 4, t = lane % 4;
      if (l.a_valid) {
        uint16_t unit[8]; // {row g: 4t, 4t+1 | row g+8: ... | row g: 4t+2, 4t+3 | row g+8: ...}
        memcpy(unit, l.a + ((l.j0 + s) ^ l.swap) * static_cast<int64_t>(l.a_stride), 16);
        for (int j = 0; j < 2; ++j) {
          a[g][4 * t + j] = bits_to_float(uint32_t{unit[j]} << 16);
          a[g + 8][4 * t + j] = bits_to_float(uint32_t{unit[2 + j]} << 16);
          a[g][4 * t + 2 + j] = bits_to_float(uint32_t{unit[4 + j]} << 16);
          a[g + 8][4 * t + 2 + j] = bits_to_float(uint32_t{unit[6 + j]} << 16);
        }
      }
      if (l.b_valid) {
        uint16_t unit[4];
        memcpy(unit, l.b + s * static_cast<int64_t>(l.b_stride), 8);
        for (int j = 0; j < 4; ++j)
          b[4 * t + j][g] = bits_to_float(uint32_t{unit[j]} << 16);
      }
    }
    for (int row = 0; row < 16; ++row) {
      Row sum = c[row];
      for (int k = 0; k < 16; ++k)
        sum += a[row][k] * b[k];
      c[row] = sum;
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    int g = lane / 4, t = lane % 4;
    for (int j = 0; j < 2; ++j) {
      acc[lane][j] = c[g][2 * t + j];
      acc[lane][2 + j] = c[g + 8][2 * t + j];
    }
  }
  return true;
}

} // namespace megalith::host
