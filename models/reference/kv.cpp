//===- kv.cpp - Keys and values of the sequences --------------------------===//

#include "models/reference/kv.h"

#include "models/reference/context.h"
#include "models/reference/parallel.h"
#include "models/weights/philox.h"
#include "models/weights/weights.h"

#include <algorithm>
#include <cassert>
#include <string>

namespace megalith::reference {

int64_t KvStore::positions(int64_t sequence) const {
  if (sequence >= int64_t(sequences.size()))
    return 0;
  return int64_t(sequences[size_t(sequence)].keys.size()) / (heads * headDim);
}

void KvStore::write(int64_t sequence, int64_t position, std::span<const double> key,
                    std::span<const double> value) {
  const int64_t width = heads * headDim;
  assert(int64_t(key.size()) == width && int64_t(value.size()) == width);
  if (sequence >= int64_t(sequences.size()))
    sequences.resize(size_t(sequence) + 1);
  Sequence &entry = sequences[size_t(sequence)];
  const size_t needed = size_t((position + 1) * width);
  if (entry.keys.size() < needed) {
    entry.keys.resize(needed);
    entry.values.resize(needed);
  }
  std::copy(key.begin(), key.end(), entry.keys.begin() + position * width);
  std::copy(value.begin(), value.end(), entry.values.begin() + position * width);
}

std::span<const double> KvStore::key(int64_t sequence, int64_t position, int64_t head) const {
  const auto &keys = sequences[size_t(sequence)].keys;
  return {keys.data() + (position * heads + head) * headDim, size_t(headDim)};
}

std::span<const double> KvStore::value(int64_t sequence, int64_t position, int64_t head) const {
  const auto &values = sequences[size_t(sequence)].values;
  return {values.data() + (position * heads + head) * headDim, size_t(headDim)};
}

KvStore KvStore::part(int64_t first, int64_t count) const {
  KvStore result(count, headDim, element);
  for (size_t s = 0; s < sequences.size(); ++s)
    for (int64_t p = 0; p < positions(int64_t(s)); ++p) {
      const auto of = [&](const std::vector<double> &all) {
        return std::span<const double>(all.data() + (p * heads + first) * headDim,
                                       size_t(count * headDim));
      };
      result.write(int64_t(s), p, of(sequences[s].keys), of(sequences[s].values));
    }
  return result;
}

void KvStore::put(int64_t first, const KvStore &part) {
  const std::vector<double> zeros(size_t(heads * headDim));
  for (size_t s = 0; s < part.sequences.size(); ++s) {
    const int64_t count = part.positions(int64_t(s));
    if (count > positions(int64_t(s)))
      write(int64_t(s), count - 1, zeros, zeros); // room for all
    const auto back = [&](const std::vector<double> &from, std::vector<double> &to) {
      const int64_t width = part.heads * headDim;
      for (int64_t p = 0; p < count; ++p)
        std::copy_n(from.begin() + p * width, width, to.begin() + (p * heads + first) * headDim);
    };
    back(part.sequences[s].keys, sequences[s].keys);
    back(part.sequences[s].values, sequences[s].values);
  }
}

void KvStore::fillHashed(uint32_t seed, int64_t layer, int64_t sequence, int64_t count,
                         int64_t source, unsigned threads) {
  const std::string name = "kv." + std::to_string(layer);
  const std::string keyName = name + ".k", valueName = name + ".v";
  const uint32_t keyHash = models::fnv1a32(keyName.data(), keyName.size());
  const uint32_t valueHash = models::fnv1a32(valueName.data(), valueName.size());
  const int64_t width = heads * headDim;
  if (count <= 0)
    return;
  const std::vector<double> zeros(static_cast<size_t>(width));
  write(sequence, count - 1, zeros, zeros); // room for all
  Sequence &entry = sequences[size_t(sequence)];
  parallelFor(count, threads, [&](int64_t begin, int64_t end) {
    std::vector<float> values(static_cast<size_t>(width));
    for (int64_t position = begin; position < end; ++position) {
      const uint64_t first = models::kvIndex(uint64_t(source), uint64_t(position), uint64_t(heads),
                                             uint64_t(headDim), 0, 0);
      for (auto [hash, to] : {std::pair(keyHash, &entry.keys), {valueHash, &entry.values}}) {
        models::weightValues(seed, hash, first, models::kKvScale, values);
        std::transform(values.begin(), values.end(), to->begin() + position * width,
                       [&](float value) {
                         return element == Element::E4m3 ? roundE4m3(value) : double(value);
                       });
      }
    }
  });
}

} // namespace megalith::reference
