//===- kv.h - Keys and values of the sequences -------------------*- C++ -*-===//
#ifndef MEGALITH_MODELS_REFERENCE_KV_H
#define MEGALITH_MODELS_REFERENCE_KV_H

#include "models/reference/rules.h"

#include <cstdint>
#include <span>
#include <vector>

namespace megalith::reference {

/// One layer's cache: per sequence a growing list of positions, each with `heads` keys and values
/// of `headDim` channels. Nothing is paged and nothing forgotten: masks alone decide what is seen.
class KvStore {
public:
  /// `element`: what made-up contents are rounded to; who writes rounds for himself.
  KvStore(int64_t heads, int64_t headDim, Element element = Element::Bf16)
      : heads(heads), headDim(headDim), element(element) {}

  const int64_t heads;
  const int64_t headDim;
  const Element element;

  /// Positions held of a sequence.
  int64_t positions(int64_t sequence) const;

  /// Writes the key and value of one position, [heads * headDim] each. Positions between the end
  /// and `position` become zeros; a position may be written again.
  void write(int64_t sequence, int64_t position, std::span<const double> key,
             std::span<const double> value);

  /// One head's key or value at a position that is held.
  std::span<const double> key(int64_t sequence, int64_t position, int64_t head) const;
  std::span<const double> value(int64_t sequence, int64_t position, int64_t head) const;

  /// Fills positions 0 .. `count` - 1 of a sequence with the made-up tensors "kv.{layer}.k" and
  /// "kv.{layer}.v" (models/weights/philox.h). `source` is the sequence whose made-up contents are
  /// taken, so that a test can give two sequences equal histories. `threads` change no value.
  void fillHashed(uint32_t seed, int64_t layer, int64_t sequence, int64_t count, int64_t source,
                  unsigned threads = 1);
  void fillHashed(uint32_t seed, int64_t layer, int64_t sequence, int64_t count) {
    fillHashed(seed, layer, sequence, count, sequence);
  }

  /// A store of heads first .. first + count - 1, and its way back into this one.
  KvStore part(int64_t first, int64_t count) const;
  void put(int64_t first, const KvStore &part);

private:
  struct Sequence {
    std::vector<double> keys, values;
  };
  std::vector<Sequence> sequences;
};

} // namespace megalith::reference

#endif // MEGALITH_MODELS_REFERENCE_KV_H
