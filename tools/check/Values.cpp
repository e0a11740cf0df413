//===- Values.cpp - What launches leave, in a file ------------------------===//

#include "tools/check/Values.h"

#include "models/weights/bf16.h"
#include "runtime/error.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <cstring>

namespace megalith::check {

using reference::Matrix;
using runtime::problem;

// A file: kMagic, the number of launches, then of each its four matrices. A matrix: Head, then its
// values, as bf16 where all of them are, else as fp32; all little-endian.
static constexpr char kMagic[8] = {'M', 'E', 'G', 'A', 'V', 'A', 'L', '1'};

namespace {
struct Head {
  uint32_t rows, columns, bytes; ///< bytes a value: 2 or 4
};
} // namespace

template <class Launch, class Use> static void eachMatrix(Launch &launch, Use use) {
  for (auto *matrix : {&launch.residual, &launch.result, &launch.routerLogits, &launch.kv})
    use(*matrix);
}

static bool isBf16(double value) {
  uint32_t bits;
  const float narrow = float(value);
  std::memcpy(&bits, &narrow, 4);
  return (bits & 0xFFFF) == 0;
}

static void write(llvm::raw_ostream &os, const Matrix &matrix) {
  const bool narrow = std::all_of(matrix.values.begin(), matrix.values.end(), isBf16);
  const Head head = {uint32_t(matrix.rows), uint32_t(matrix.columns), narrow ? 2u : 4u};
  os.write(reinterpret_cast<const char *>(&head), sizeof head);
  for (double value : matrix.values) {
    const float whole = float(value);
    uint32_t bits;
    std::memcpy(&bits, &whole, 4);
    if (narrow)
      bits >>= 16;
    os.write(reinterpret_cast<const char *>(&bits), head.bytes);
  }
}

/// Takes a matrix off the front of `bytes`; false if it is cut short.
static bool read(llvm::StringRef &bytes, Matrix &matrix) {
  Head head;
  if (bytes.size() < sizeof head)
    return false;
  std::memcpy(&head, bytes.data(), sizeof head);
  bytes = bytes.drop_front(sizeof head);
  const uint64_t count = uint64_t(head.rows) * head.columns;
  if ((head.bytes != 2 && head.bytes != 4) || bytes.size() / head.bytes < count)
    return false;
  matrix = Matrix(head.rows, head.columns);
  for (double &value : matrix.values) {
    uint32_t bits = 0;
    std::memcpy(&bits, bytes.data(), head.bytes);
    if (head.bytes == 2)
      bits <<= 16;
    float whole;
    std::memcpy(&whole, &bits, 4);
    value = whole;
    bytes = bytes.drop_front(head.bytes);
  }
  return true;
}

llvm::Error writeValues(llvm::StringRef file, const std::vector<LaunchValues> &launches) {
  return llvm::writeToOutput(file, [&](llvm::raw_ostream &os) {
    const uint32_t count = uint32_t(launches.size());
    os.write(kMagic, sizeof kMagic);
    os.write(reinterpret_cast<const char *>(&count), sizeof count);
    for (const LaunchValues &launch : launches)
      eachMatrix(launch, [&](const Matrix &matrix) { write(os, matrix); });
    return llvm::Error::success();
  });
}

llvm::Expected<std::vector<LaunchValues>> readValues(llvm::StringRef file) {
  auto buffer = llvm::MemoryBuffer::getFile(file);
  if (!buffer)
    return problem("{0}: {1}", file, buffer.getError().message());
  llvm::StringRef bytes = (*buffer)->getBuffer();
  uint32_t count = 0;
  if (!bytes.consume_front({kMagic, sizeof kMagic}) || bytes.size() < sizeof count)
    return problem("{0}: expected values of launches but got another file", file);
  std::memcpy(&count, bytes.data(), sizeof count);
  bytes = bytes.drop_front(sizeof count);
  std::vector<LaunchValues> launches;
  bool whole = true;
  while (whole && launches.size() < count)
    eachMatrix(launches.emplace_back(),
               [&](Matrix &matrix) { whole = whole && read(bytes, matrix); });
  if (!whole || !bytes.empty())
    return problem("{0}: expected the values of {1} launches but the file is {2}", file, count,
                   whole ? "longer" : "cut short");
  return launches;
}

} // namespace megalith::check
