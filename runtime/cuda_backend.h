//===- cuda_backend.h - Running plans on a GPU -------------------*- C++ -*-===//
#ifndef MEGALITH_RUNTIME_CUDA_BACKEND_H
#define MEGALITH_RUNTIME_CUDA_BACKEND_H

#include "runtime/backend.h"
#include "runtime/driver.h"

#include <memory>
#include <vector>

namespace megalith::runtime {

/// One GPU. A deadline or any other trap loses its context: make a new process.
class CudaBackend final : public Backend {
public:
  /// Opens device `ordinal` of this machine.
  static llvm::Expected<std::unique_ptr<CudaBackend>> create(int ordinal = 0);
  ~CudaBackend() override;

  Driver &driver() { return *gpu; }

  llvm::Error check(const Plan &plan) override;
  llvm::Expected<int> loadKernel(const Plan &plan, const Kernel &kernel,
                                 llvm::StringRef folder) override;
  llvm::Expected<Address> allocate(llvm::StringRef name, int64_t bytes, BufferSpace space) override;
  llvm::Expected<Address> place(llvm::StringRef name, WeightPacker packer) override;
  llvm::Error write(Address to, const void *from, int64_t bytes) override;
  llvm::Error read(void *to, Address from, int64_t bytes) override;
  llvm::Error fill(Address to, uint32_t word, int64_t bytes) override;
  llvm::Error run(std::span<const PreparedLaunch> launches, Chaining chaining) override;
  /// As a CUDA graph.
  llvm::Error repeat(std::span<const PreparedLaunch> launches, Chaining chaining,
                     int64_t times) override;
  llvm::Expected<Address> allocateShared(llvm::StringRef name, int64_t bytes) override;
  llvm::Expected<std::string> share(Address address) override { return gpu->share(address); }
  llvm::Expected<Address> mapShared(llvm::StringRef name, llvm::StringRef handle) override;
  llvm::Error settle() override { return gpu->synchronize(); }
  FaultTable *faultAddress() override;
  std::vector<FaultRecord> faults() override;
  bool losesContext() const override { return true; }

  /// Puts launches into the driver's stream without waiting; what run() does first, and what a
  /// graph captures (Driver::capture).
  llvm::Error enqueue(std::span<const PreparedLaunch> launches, Chaining chaining);

private:
  explicit CudaBackend(std::unique_ptr<Driver> driver) : gpu(std::move(driver)) {}
  void clearFaults();

  struct Loaded {
    Driver::Module module;
    Driver::Function function;
    unsigned ctas, threads, smemBytes;
  };

  std::unique_ptr<Driver> gpu;
  std::vector<Loaded> kernels;
  std::vector<Driver::Address> allocations, mapped;
  std::vector<void *> pinned;
  FaultTable *faultTable = nullptr; ///< pinned
  Driver::Address faultOnDevice = 0;
};

} // namespace megalith::runtime

#endif // MEGALITH_RUNTIME_CUDA_BACKEND_H
