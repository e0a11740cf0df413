//===- host_backend.h - Running plans on the CPU -----------------*- C++ -*-===//
//
// The emitted source, compiled by g++, on the host platform's machine: no GPU, adversarial memory,
// one seed a run (DESIGN section 6).
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_RUNTIME_HOST_BACKEND_H
#define MEGALITH_RUNTIME_HOST_BACKEND_H

#include "runtime/backend.h"
#include "runtime/fault.h"
#include "runtime/host/machine.h"
#include "runtime/host_compile.h"

#include <memory>
#include <utility>
#include <vector>

namespace megalith::runtime {

struct HostBackendOptions {
  HostCompileOptions compile; ///< includeFolder is needed: writeDeviceHeaders
  uint64_t seed = 1;
  int chaos = 1; ///< as host::Options::chaos
  /// Keep what every launch did, for conformance (runtime/host/log.h): kernels are compiled anew,
  /// and run several times slower.
  bool log = false;
};

class HostBackend final : public Backend {
public:
  explicit HostBackend(HostBackendOptions options) : options(std::move(options)) {}
  ~HostBackend() override;

  /// Seed of the next run.
  void reseed(uint64_t seed);
  /// What the launches of the last runs did, run after run, with HostBackendOptions::log; forgotten
  /// by this call.
  std::string takeLog() { return std::exchange(logText, {}); }
  /// About the last run that ended well.
  const host::RunReport &report() const { return lastReport; }

  llvm::Error check(const Plan &plan) override;
  llvm::Expected<int> loadKernel(const Plan &plan, const Kernel &kernel,
                                 llvm::StringRef folder) override;
  llvm::Expected<Address> allocate(llvm::StringRef name, int64_t bytes, BufferSpace space) override;
  /// Segments are packed when a kernel first reads them: of a layer of a real model only the
  /// experts that are routed to ever exist.
  llvm::Expected<Address> place(llvm::StringRef name, WeightPacker packer) override;
  llvm::Error write(Address to, const void *from, int64_t bytes) override;
  llvm::Error read(void *to, Address from, int64_t bytes) override;
  llvm::Error fill(Address to, uint32_t word, int64_t bytes) override;
  llvm::Error run(std::span<const PreparedLaunch> launches, Chaining chaining) override;
  bool canRunApart() const override { return true; }
  llvm::Error runApart(std::span<const std::vector<PreparedLaunch>> ofRanks,
                       Chaining chaining) override;
  /// In files of /dev/shm.
  llvm::Expected<Address> allocateShared(llvm::StringRef name, int64_t bytes) override;
  llvm::Expected<std::string> share(Address address) override;
  llvm::Expected<Address> mapShared(llvm::StringRef name, llvm::StringRef handle) override;
  FaultTable *faultAddress() override { return &faultTable.head; }
  std::vector<FaultRecord> faults() override { return writtenRecords(&faultTable.head); }
  bool losesContext() const override { return false; }

private:
  /// The machine's report with the name behind each edge's number: it knows launches by their place
  /// in `launches` and edges by number.
  std::string withEdgeNames(llvm::StringRef report, std::span<const PreparedLaunch> launches) const;

  HostBackendOptions options;
  std::unique_ptr<host::Machine> machine;     ///< made by check, which knows the SMs
  std::vector<host::KernelLibrary> libraries; ///< the kernels' code
  std::vector<const host::KernelRecord *> kernels;
  std::vector<std::vector<Edge>> edges; ///< by kernel
  std::vector<void *> allocations;
  struct SharedMemory {
    void *memory;
    size_t bytes;
    std::string file; ///< empty: another process's
  };
  std::vector<SharedMemory> sharedMemory;
  struct alignas(256) {
    FaultTable head = {.grace_ns = 0, .places = kFaultPlaces, .unused = 0};
    FaultRecord records[kFaultPlaces] = {};
  } faultTable;
  host::RunReport lastReport;
  std::string logText;
};

} // namespace megalith::runtime

#endif // MEGALITH_RUNTIME_HOST_BACKEND_H
