//===- dump_weights.cpp - Weights as text, for the NumPy cross-check ------===//
//
// dump_weights SEED NAME COLUMNS FIRST COUNT STRIDE prints the bits of elements FIRST + i * STRIDE
// as bf16, one hexadecimal number a line.
// dump_weights nvfp4 SEED NAME ROWS COLUMNS prints a made-up NVFP4 matrix: the bits of its global
// factor, then the codes and the scales of each row as bytes.
//
//===----------------------------------------------------------------------===//

#include "models/weights/bf16.h"
#include "models/weights/nvfp4.h"
#include "models/weights/philox.h"

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace megalith::models;

static void printBytes(const std::vector<uint8_t> &bytes) {
  for (uint8_t byte : bytes)
    std::printf("%02x", byte);
  std::printf("\n");
}

static int dumpNvfp4(uint32_t seed, const char *name, int64_t rows, int64_t columns) {
  auto tensor =
      llvm::cantFail(HashedWeights(seed).openBlocks({name, {rows, columns}}, BlockFormat::nvfp4()));
  std::printf("%08x\n", std::bit_cast<uint32_t>(tensor->global(0)));
  std::vector<uint8_t> codes(size_t(columns / 2)), scales(size_t(columns / 16));
  for (int64_t row = 0; row < rows; ++row) {
    tensor->stored(row, codes, scales);
    printBytes(codes);
    printBytes(scales);
  }
  return 0;
}

int main(int argc, char **argv) {
  if (argc == 6 && !std::strcmp(argv[1], "nvfp4"))
    return dumpNvfp4(uint32_t(std::atoi(argv[2])), argv[3], std::atoll(argv[4]),
                     std::atoll(argv[5]));
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
