//===- weight_packer.h - From checkpoint tensors to memory -------*- C++ -*-===//
//
// A plan's weight says which tensors it is made of, how they are transformed and how it lies in
// memory. Packing takes rows one at a time, so neither side needs a whole tensor.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_RUNTIME_WEIGHT_PACKER_H
#define MEGALITH_RUNTIME_WEIGHT_PACKER_H

#include "runtime/packing_nvfp4.h"
#include "runtime/plan.h"

#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace megalith::runtime {

/// Reads row `row` of an opened tensor (leading dimensions flattened), all columns, as bf16 bits or
/// as fp32 numbers. Made of a function that does either: what reads bf16 only is widened. Cannot
/// fail; may be called from several threads.
class TensorRow {
public:
  template <class Read>
  requires(!std::is_same_v<Read, TensorRow>) TensorRow(Read read) {
    if constexpr (std::is_invocable_v<Read, int64_t, std::span<float>>)
      wide = read;
    if constexpr (std::is_invocable_v<Read, int64_t, std::span<uint16_t>>)
      narrow = read;
  }
  void operator()(int64_t row, std::span<uint16_t> out) const;
  void operator()(int64_t row, std::span<float> out) const;

private:
  std::function<void(int64_t row, std::span<uint16_t> out)> narrow;
  std::function<void(int64_t row, std::span<float> out)> wide;
};

/// What a checkpoint tensor is for. Only made-up weights care (models/weights/weights.h).
enum TensorUse { kMatrix, kGain, kCentredGain };

/// An opened NVFP4 tensor (leading dimensions flattened). No scale is negative or NaN. Cannot fail;
/// may be called from several threads.
struct BlockRows {
  /// Row `row` as it is stored: codes two to a byte, e4m3 scales; all columns.
  std::function<void(int64_t row, std::span<uint8_t> codes, std::span<uint8_t> scales)> row;
  std::function<float(int64_t row)> global;     ///< weight_scale_2 of the row
  std::function<float(int64_t row)> inputScale; ///< of activations; 0: the checkpoint has none
};

/// Opens a checkpoint tensor of the given shape.
struct OpenTensor
    : std::function<llvm::Expected<TensorRow>(const std::string &name,
                                              const std::vector<int64_t> &shape, TensorUse use)> {
  using function::function;

  /// The same for NVFP4 tensors, `shape` in numbers. Empty: there are none.
  std::function<llvm::Expected<BlockRows>(const std::string &name,
                                          const std::vector<int64_t> &shape)>
      blocks;
};

/// Bytes of a weight of one layer: an expert bank is `experts` segments of the same size,
/// everything else one segment.
int64_t segmentBytes(const Weight &weight);
int64_t segmentCount(const Weight &weight);
inline int64_t weightBytes(const Weight &weight) {
  return segmentBytes(weight) * segmentCount(weight);
}

/// Checkpoint name of the tensor that a part takes: {layer} and {expert} replaced.
std::string tensorName(const WeightPart &part, int64_t layer, int64_t expert);

/// Which row of the tensor row `row` of the transformed part comes from; -1: a row of padding.
int64_t sourceRow(const WeightPart &part, int64_t row);

/// A weight of one layer with its tensors opened.
class WeightPacker {
public:
  /// Opens every tensor; `layer` replaces {layer}.
  static llvm::Expected<WeightPacker> open(const Weight &weight, int64_t layer,
                                           const OpenTensor &openTensor);

  const Weight &weight() const { return spec; }
  int64_t layer() const { return layerNumber; }

  /// Fills `out` (segmentBytes) with a segment, padding included, on up to `threads` threads.
  void pack(int64_t segment, unsigned char *out, unsigned threads = 1) const;

  /// Row `row` (0..n-1, after stacking) of a segment, k bf16 numbers as bits. For gate/up, row 2i
  /// is gate i and row 2i+1 up i. Not for NVFP4.
  void row(int64_t segment, int64_t row, std::span<uint16_t> out) const;
  /// The same in fp32, for weights that are.
  void row(int64_t segment, int64_t row, std::span<float> out) const;

private:
  /// Where a row of a segment comes from.
  struct Origin {
    size_t part;
    size_t tensor;  ///< of the part
    int64_t source; ///< row of the tensor, or -1
  };

  WeightPacker(Weight weight, int64_t layer) : spec(std::move(weight)), layerNumber(layer) {}
  llvm::Error collectFactors();
  Origin origin(int64_t segment, int64_t row) const;
  void blockRow(int64_t segment, int64_t row, std::span<uint8_t> codes,
                std::span<uint8_t> scales) const;
  /// Calls pack(first, count) for shares of `count` on up to `threads` threads.
  static void share(int64_t count, unsigned threads,
                    llvm::function_ref<void(int64_t first, int64_t count)> pack);
  template <class T> void stackedRow(int64_t segment, int64_t row, std::span<T> out) const;

  Weight spec;
  int64_t layerNumber;
  std::vector<int64_t> partRows; ///< rows of each part in a segment
  /// [part][expert], or [part][0] where one tensor serves all experts.
  std::vector<std::vector<TensorRow>> tensors;
  std::vector<std::vector<BlockRows>> blocks; ///< the same of an NVFP4 weight
  std::vector<Nvfp4Factors> factors;          ///< of each segment
};

} // namespace megalith::runtime

#endif // MEGALITH_RUNTIME_WEIGHT_PACKER_H
