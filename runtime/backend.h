//===- backend.h - Where a plan runs -----------------------------*- C++ -*-===//
//
// What the executor needs of a machine. Two implementations: the CUDA driver (cuda_backend.h) and
// the host platform's machine (host_backend.h).
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_RUNTIME_BACKEND_H
#define MEGALITH_RUNTIME_BACKEND_H

#include "runtime/abi.h"
#include "runtime/plan.h"
#include "runtime/weight_packer.h"

#include "llvm/Support/Error.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace megalith::runtime {

/// One launch, ready to go.
struct PreparedLaunch {
  int kernel = -1; ///< as returned by Backend::loadKernel
  LaunchArgs args = {};
  /// Of a looping kernel, the whole of its StepArgs; `args` is a copy of its beginning.
  std::vector<uint64_t> stepArgs;
  /// Of a kernel of several ranks, the whole of its RanksArgs; `args` is a copy of its beginning.
  std::vector<uint64_t> rankArgs;

  /// A looping kernel's SMs wait for each other from turn to turn, so it needs them all at once and
  /// overlaps with no launch.
  bool isLooping() const { return !stepArgs.empty(); }
  /// A looping kernel runs launches [args.launch_in_step, end()) of its step.
  uint64_t end() const { return stepArgs[sizeof(LaunchArgs) / sizeof(uint64_t)]; }
  /// Makes it launch `number` of its step, whatever the executor said; of several ranks only where
  /// it holds one.
  void setLaunchInStep(uint32_t number) {
    args.launch_in_step = number;
    for (std::vector<uint64_t> *own : {&stepArgs, &rankArgs})
      if (!own->empty())
        reinterpret_cast<LaunchArgs *>(own->data())->launch_in_step = number;
  }
  /// What the kernel gets as its parameter.
  const LaunchArgs &parameters() const {
    const std::vector<uint64_t> &own = isLooping() ? stepArgs : rankArgs;
    return own.empty() ? args : *reinterpret_cast<const LaunchArgs *>(own.data());
  }
};

/// How the launches of one call follow each other.
enum class Chaining {
  Programmatic, ///< a launch starts while the one before it ends (programmatic dependent launch)
  Separate,     ///< a launch starts when the one before it is complete
};

class Backend {
public:
  virtual ~Backend() = default;

  /// Memory as kernels address it; lives as long as the backend.
  using Address = uint64_t;

  /// Refuses a plan that cannot run here.
  virtual llvm::Error check(const Plan &plan) = 0;
  /// Loads a kernel of a plan that lies in `folder`; returns its number.
  virtual llvm::Expected<int> loadKernel(const Plan &plan, const Kernel &kernel,
                                         llvm::StringRef folder) = 0;

  /// `name` is for messages. 256-byte aligned; contents undefined.
  virtual llvm::Expected<Address> allocate(llvm::StringRef name, int64_t bytes,
                                           BufferSpace space) = 0;
  /// Packs a weight into read-only memory, at once or when it is read.
  virtual llvm::Expected<Address> place(llvm::StringRef name, WeightPacker packer) = 0;
  virtual llvm::Error write(Address to, const void *from, int64_t bytes) = 0;
  virtual llvm::Error read(void *to, Address from, int64_t bytes) = 0;
  /// Repeats a word; bytes is a multiple of 4.
  virtual llvm::Error fill(Address to, uint32_t word, int64_t bytes) = 0;

  /// Runs launches in order and waits for them. An error here is the machine's own; the executor
  /// looks at the fault records first, which tells more.
  virtual llvm::Error run(std::span<const PreparedLaunch> launches, Chaining chaining) = 0;
  /// The same `times` times over: steps that follow each other without the host (PreparedLaunch of
  /// Executor::prepareAdvance last). The first launch of a round starts when the round before is
  /// complete.
  virtual llvm::Error repeat(std::span<const PreparedLaunch> launches, Chaining chaining,
                             int64_t times) {
    for (int64_t i = 0; i < times; ++i)
      if (llvm::Error error = run(launches, chaining))
        return error;
    return llvm::Error::success();
  }
  /// Whether ranks can run as on GPUs of their own, each with launches that no other rank's wait
  /// for (runApart); else they share launches.
  virtual bool canRunApart() const { return false; }
  /// Launches of several ranks, as many of each, on memory that all see.
  virtual llvm::Error runApart(std::span<const std::vector<PreparedLaunch>> ofRanks,
                               Chaining chaining);
  /// Memory as allocate() gives, that other processes' backends can map; and by what they do.
  virtual llvm::Expected<Address> allocateShared(llvm::StringRef name, int64_t bytes);
  virtual llvm::Expected<std::string> share(Address address);
  /// Maps what another process's share() said, until the backend goes.
  virtual llvm::Expected<Address> mapShared(llvm::StringRef name, llvm::StringRef handle);
  /// All that was written or filled is in memory.
  virtual llvm::Error settle() { return llvm::Error::success(); }
  /// The fault table's address for kernels, and the records that the last run left there.
  virtual FaultTable *faultAddress() = 0;
  virtual std::vector<FaultRecord> faults() = 0;
  /// Whether a failed run ends this backend's usefulness, as a trap on a GPU does.
  virtual bool losesContext() const = 0;
};

inline llvm::Expected<Backend::Address> Backend::allocateShared(llvm::StringRef, int64_t) {
  return llvm::createStringError("this backend shares no memory with other processes");
}
inline llvm::Expected<std::string> Backend::share(Address) {
  return llvm::createStringError("this backend shares no memory with other processes");
}
inline llvm::Expected<Backend::Address> Backend::mapShared(llvm::StringRef, llvm::StringRef) {
  return llvm::createStringError("this backend shares no memory with other processes");
}
inline llvm::Error Backend::runApart(std::span<const std::vector<PreparedLaunch>>, Chaining) {
  return llvm::createStringError("ranks of this backend share launches");
}

} // namespace megalith::runtime

#endif // MEGALITH_RUNTIME_BACKEND_H
