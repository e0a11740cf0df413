//===- FilledBackend.cpp - A GPU whose weights are made up in place ---------===//

#include "tools/bench/FilledBackend.h"

#include "runtime/error.h"
#include "runtime/packing.h"

#include <algorithm>
#include <cstring>

using llvm::Error;
using llvm::Expected;
using llvm::StringRef;

namespace megalith::bench {

using runtime::problem;
using runtime::Weight;
using runtime::WeightForm;
using runtime::WeightPacker;

/// A layer's KV pages are in one or the other.
constexpr llvm::StringLiteral kPools[] = {"kv[", "kv_window["};

Expected<FilledBackend::Address> FilledBackend::allocate(StringRef name, int64_t bytes,
                                                         runtime::BufferSpace space) {
  if (llvm::none_of(kPools, [&](StringRef pool) { return name.starts_with(pool); }))
    return cuda.allocate(name, bytes, space);
  auto it = allocations.find(name.str());
  if (it != allocations.end()) {
    if (it->second.bytes < bytes)
      return problem("pool '{0}' has {1} bytes, another plan wants {2}", name, it->second.bytes,
                     bytes);
    return it->second.address;
  }
  auto address = cuda.allocate(name, bytes, space);
  if (address)
    allocations[name.str()] = {*address, bytes};
  return address;
}

Expected<FilledBackend::Address> FilledBackend::place(StringRef name, WeightPacker packer) {
  const Weight &weight = packer.weight();
  const int64_t bytes = runtime::weightBytes(weight), segment = runtime::segmentBytes(weight);
  auto it = allocations.find(name.str());
  if (it != allocations.end()) {
    if (it->second.bytes != bytes)
      return problem("weight '{0}' has {1} bytes in one plan and {2} in another: expected plans of "
                     "one model",
                     name, it->second.bytes, bytes);
    return it->second.address;
  }
  if (!runtime::fillSegment(weight, packer.layer(), 0, seed, nullptr)) {
    auto address = cuda.place(name, std::move(packer));
    if (address)
      allocations[name.str()] = {*address, bytes};
    return address;
  }
  auto address = cuda.allocate(name, bytes, runtime::BufferSpace::Device);
  if (!address)
    return address.takeError();
  for (int64_t s = 0; s < runtime::segmentCount(weight); ++s) {
    auto *out = reinterpret_cast<unsigned char *>(*address + uint64_t(s * segment));
    if (Error error = fill_.fill(*runtime::fillSegment(weight, packer.layer(), s, seed, out)))
      return error;
  }
  if (!std::exchange(checked[weight.name], true))
    if (Error error = checkBytes(packer, *address))
      return error;
  allocations[name.str()] = {*address, bytes};
  placed += bytes;
  return *address;
}

/// The bytes that the host packs for a part of the weight, and where they lie in a segment.
static std::vector<unsigned char> packSome(const WeightPacker &packer, int64_t segment,
                                           int64_t &offset) {
  const Weight &weight = packer.weight();
  std::vector<unsigned char> bytes;
  if (weight.isNvfp4()) { // all of it
    bytes.resize(size_t(runtime::segmentBytes(weight)));
    packer.pack(segment, bytes.data());
    offset = 0;
  } else if (weight.form == WeightForm::Strips || weight.form == WeightForm::GateUpStrips) {
    const runtime::StripLayout layout(weight.n, weight.k);
    const int64_t count = std::min<int64_t>(runtime::kPieceStrips, layout.strips);
    const int64_t first = layout.strips - count;
    bytes.resize(size_t(count * layout.stripBytes()));
    offset = layout.pieceOffset(layout.blocks - 1, first);
    runtime::packPiece(
        layout, layout.blocks - 1, first, count,
        [&](int64_t row, std::span<uint16_t> out) { packer.row(segment, row, out); }, bytes.data());
  } else { // the last row
    std::vector<uint16_t> values(static_cast<size_t>(weight.k));
    packer.row(segment, weight.n - 1, values);
    bytes.resize(values.size() * 2);
    std::memcpy(bytes.data(), values.data(), bytes.size());
    offset = (weight.n - 1) * weight.k * 2;
  }
  return bytes;
}

Error FilledBackend::checkBytes(const WeightPacker &packer, Address address) {
  const Weight &weight = packer.weight();
  const int64_t segment = runtime::segmentCount(weight) / 2;
  int64_t offset = 0;
  const std::vector<unsigned char> expected = packSome(packer, segment, offset);
  std::vector<unsigned char> got(expected.size());
  const int64_t from = segment * runtime::segmentBytes(weight) + offset;
  if (Error error = cuda.read(got.data(), address + uint64_t(from), int64_t(got.size())))
    return error;
  const auto wrong = std::mismatch(expected.begin(), expected.end(), got.begin());
  if (wrong.first == expected.end())
    return Error::success();
  return problem("weight '{0}' of layer {1}: byte {2} of segment {3} is {4}, packing on the host "
                 "gives {5}; please report this as a fault of the GPU's fill",
                 weight.name, packer.layer(), offset + (wrong.first - expected.begin()), segment,
                 int(*wrong.second), int(*wrong.first));
}

Expected<FilledBackend::Address> FilledBackend::pool(int64_t layer) const {
  for (StringRef pool : kPools)
    if (auto it = allocations.find(pool.str() + std::to_string(layer) + "]");
        it != allocations.end())
      return it->second.address;
  return problem("layer {0} has no pages to fill; please report this as a fault of the benchmark",
                 layer);
}

} // namespace megalith::bench
