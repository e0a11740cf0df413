//===- safetensors.h - Weights from a checkpoint -----------------*- C++ -*-===//
#ifndef MEGALITH_MODELS_WEIGHTS_SAFETENSORS_H
#define MEGALITH_MODELS_WEIGHTS_SAFETENSORS_H

#include "models/weights/weights.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"

namespace megalith::models {

/// A checkpoint in the safetensors format: one file, or a folder that holds `model.safetensors` or
/// shards named by `model.safetensors.index.json`. Files are mapped, not read. Element types: BF16
/// and F32; a tensor of another type is refused when it is opened, by name.
class SafetensorsWeights final : public WeightSource {
public:
  /// Maps every file of the checkpoint and checks its header: lengths, offsets, shapes. With an
  /// index, each tensor must be in the shard the index names.
  static llvm::Expected<std::unique_ptr<SafetensorsWeights>> load(llvm::StringRef path);

  ~SafetensorsWeights() override;
  llvm::Expected<std::unique_ptr<WeightTensor>> open(const TensorSpec &spec) const override;

private:
  struct MappedFile;
  struct Entry {
    std::string type;
    std::vector<int64_t> shape;
    const unsigned char *data;
    std::string file;
  };

  SafetensorsWeights();
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
