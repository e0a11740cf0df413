//===- FilledBackend.h - A GPU whose weights are made up in place -*- C++ -*-===//
//
// Weights and KV pools are allocated once and serve every plan of a run, whatever its rows: plans
// of all buckets read the same bytes. Weights are filled by the GPU itself (runtime/device_fill.h).
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_TOOLS_BENCH_FILLEDBACKEND_H
#define MEGALITH_TOOLS_BENCH_FILLEDBACKEND_H

#include "runtime/cuda_backend.h"
#include "runtime/device_fill.h"

#include <map>
#include <string>

namespace megalith::bench {

class FilledBackend final : public runtime::Backend {
public:
  FilledBackend(runtime::CudaBackend &cuda, runtime::DeviceFill &fill, uint32_t seed)
      : cuda(cuda), fill_(fill), seed(seed) {}

  llvm::Error check(const runtime::Plan &plan) override { return cuda.check(plan); }
  llvm::Expected<int> loadKernel(const runtime::Plan &plan, const runtime::Kernel &kernel,
                                 llvm::StringRef folder) override {
    return cuda.loadKernel(plan, kernel, folder);
  }
  /// A pool of a layer's KV pages ("kv[3]") is allocated once.
  llvm::Expected<Address> allocate(llvm::StringRef name, int64_t bytes,
                                   runtime::BufferSpace space) override;
  /// A weight is allocated and filled once. A few of its bytes are compared with the host's packing
  /// the first time.
  llvm::Expected<Address> place(llvm::StringRef name, runtime::WeightPacker packer) override;
  llvm::Error write(Address to, const void *from, int64_t bytes) override {
    return cuda.write(to, from, bytes);
  }
  llvm::Error read(void *to, Address from, int64_t bytes) override {
    return cuda.read(to, from, bytes);
  }
  llvm::Error fill(Address to, uint32_t word, int64_t bytes) override {
    return cuda.fill(to, word, bytes);
  }
  llvm::Error run(std::span<const runtime::PreparedLaunch> launches,
                  runtime::Chaining chaining) override {
    return cuda.run(launches, chaining);
  }
  llvm::Error repeat(std::span<const runtime::PreparedLaunch> launches, runtime::Chaining chaining,
                     int64_t times) override {
    return cuda.repeat(launches, chaining, times);
  }
  FaultTable *faultAddress() override { return cuda.faultAddress(); }
  std::vector<FaultRecord> faults() override { return cuda.faults(); }
  bool losesContext() const override { return true; }

  /// Where the pages of a layer lie, of all positions or of a window.
  llvm::Expected<Address> pool(int64_t layer) const;
  int64_t weightBytesPlaced() const { return placed; }

private:
  llvm::Error checkBytes(const runtime::WeightPacker &packer, Address address);

  runtime::CudaBackend &cuda;
  runtime::DeviceFill &fill_;
  uint32_t seed;
  struct Allocation {
    Address address;
    int64_t bytes;
  };
  std::map<std::string, Allocation> allocations; ///< by name, of weights and pools
  std::map<std::string, bool> checked;           ///< weights by name without layer
  int64_t placed = 0;
};

} // namespace megalith::bench

#endif // MEGALITH_TOOLS_BENCH_FILLEDBACKEND_H
