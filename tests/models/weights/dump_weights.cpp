//===- dump_weights.cpp - Weights as text, for the NumPy cross-check ------===//
//
// dump_weights SEED NAME COLUMNS FIRST COUNT STRIDE prints the bits of elements FIRST + i * STRIDE
// as bf16, one hexadecimal number a line.
//
//===----------------------------------------------------------------------===//

#include "models/weights/bf16.h"
#include "models/weights/philox.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace megalith::models;

int main(int argc, char **argv) {
  if (argc != 7)
    return 2;
  auto number = [&](int i) { return std::strtoull(argv[i], nullptr, 10); };
  const float scale = weightScale(number(3));
  for (uint64_t i = 0; i < number(5); ++i) {
    const float value = weightValue(uint32_t(number(1)), fnv1a32(argv[2], std::strlen(argv[2])),
                                    number(4) + i * number(6), scale);
    if (r16(value) != value)
      return 1; // not a bf16 number: printing it would hide that
    std::printf("%04x\n", toBf16(value));
  }
  return 0;
}
