//===- safetensors.h - Weights from a checkpoint -----------------*- C++ -*-===//
#ifndef MEGALITH_MODELS_WEIGHTS_SAFETENSORS_H
#define MEGALITH_MODELS_WEIGHTS_SAFETENSORS_H

#include "models/weights/weights.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"

namespace megalith::models {

/// A checkpoint in the safetensors format: one file, or a folder that holds `model.safetensors` or
/// shards named by `model.safetensors.index.json`. Files are mapped, not read. Element types: BF16
/// and F32, and those of block-scaled tensors; a tensor of another type is refused when it is
/// opened, by name.
class SafetensorsWeights final : public WeightSource {
public:
  /// Maps every file of the checkpoint and checks its header: lengths, offsets, shapes. With an
  /// index, each tensor must be in the shard the index names.
  static llvm::Expected<std::unique_ptr<SafetensorsWeights>> load(llvm::StringRef path);

  ~SafetensorsWeights() override;
  llvm::Expected<std::unique_ptr<WeightTensor>> open(const TensorSpec &spec) const override;

  /// A block-scaled tensor of shape [.., N, K] is several of the file, by the names that the
  /// formats' makers use (`name` may end in `.weight` with NVFP4 and FP8):
  ///
  ///   NVFP4 (ModelOpt)  <name> U8 [.., N, K/2]; <name>_weight_scale F8_E4M3 [.., N, K/16];
  ///                     <name>_weight_scale_2 F32; <name>_input_scale F32, which may be missing.
  ///                     After `x.weight`: `x.weight_scale`, `x.weight_scale_2`, `x.input_scale`.
  ///                     F32 factors: one for all, one a matrix [E], or one for each half of its
  ///                     rows [E, 2] (gate, up).
  ///   MXFP4             <name>_blocks U8 [.., N, K/32, 16] or [.., N, K/2]; <name>_scales U8
  ///                     [.., N, K/32]
  ///   FP8 block         <name> F8_E4M3 [.., N, K]; <name>_scale_inv F32 or BF16, as the format
  ///                     says, [.., N/128, K/128] rounded up
  llvm::Expected<std::unique_ptr<BlockTensor>> openBlocks(const TensorSpec &spec,
                                                          const BlockFormat &format) const override;

private:
  struct MappedFile;
  struct Entry {
    std::string type;
    std::vector<int64_t> shape;
    const unsigned char *data;
    std::string file;
  };

  SafetensorsWeights();
  /// The tensor `name` if it has type `type` and one of `shapes`; `what` says what it is.
  llvm::Expected<const Entry *> find(llvm::StringRef name, llvm::StringRef type,
                                     llvm::ArrayRef<std::vector<int64_t>> shapes,
                                     llvm::StringRef what) const;
  /// The F32 factors `name` of a tensor of shape `spec.shape`, each checked to be a number.
  llvm::Expected<std::vector<float>> factors(llvm::StringRef name, const TensorSpec &spec) const;
  llvm::Error addFile(llvm::StringRef path);
  llvm::Error addHeader(llvm::StringRef path, llvm::StringRef text, const unsigned char *data,
                        uint64_t dataBytes);
  llvm::Error addIndexed(llvm::StringRef folder, llvm::StringRef indexPath);

  std::string origin;
  std::vector<std::unique_ptr<MappedFile>> files;
  llvm::StringMap<Entry> entries;
};

} // namespace megalith::models

#endif // MEGALITH_MODELS_WEIGHTS_SAFETENSORS_H
