//===- driver.h - The CUDA driver, loaded at run time ------------*- C++ -*-===//
//
// A thin typed layer over libcuda.so.1, opened by dlopen: programs build and run without CUDA and
// say clearly what is missing. One device, its primary context, one stream.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_RUNTIME_DRIVER_H
#define MEGALITH_RUNTIME_DRIVER_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace megalith::runtime {

/// What the runtime asks of a GPU.
struct DeviceInfo {
  std::string name;
  int computeMajor = 0, computeMinor = 0;
  int sms = 0;
  int64_t memoryBytes = 0;
  int64_t smemBytes = 0; ///< most dynamic shared memory of one CTA
  int driverVersion = 0; ///< newest CUDA it supports, 13000 = 13.0
  bool cooperative = false;
};

/// "13.0" for 13000.
std::string cudaVersionText(int version);

/// Why a plan for `target` with `sms` CTAs cannot run on a device; success if it can. `cudaVersion`
/// is the CUDA that the cubins were made with (Nvrtc::version).
llvm::Error checkDevice(const DeviceInfo &device, llvm::StringRef target, int64_t sms,
                        int64_t smemBytes, int cudaVersion);

/// How a kernel is launched.
struct LaunchOptions {
  unsigned ctas = 0;
  unsigned threads = 0;
  unsigned smemBytes = 0;
  bool programmatic = false; ///< may start when the launch before it triggers
  bool cooperative = false;  ///< all CTAs resident or the launch is refused
};

/// The driver with one device's primary context current on the constructing thread. Not copyable;
/// calls from one thread.
class Driver {
public:
  /// Opens libcuda.so.1 and device `ordinal`.
  static llvm::Expected<std::unique_ptr<Driver>> open(int ordinal = 0);
  /// GPUs of this machine, at least one.
  static llvm::Expected<int> count();
  ~Driver();
  Driver(const Driver &) = delete;

  const DeviceInfo &info() const;

  using Address = uint64_t; ///< of device memory
  using Module = void *;
  using Function = void *;
  using Graph = void *;
  using Event = void *;

  llvm::Expected<Address> allocate(int64_t bytes);
  /// Bytes that are not allocated, by anybody.
  llvm::Expected<int64_t> freeBytes();
  void release(Address address);
  /// A handle of memory from allocate(), of whole kShareable bytes, by which another process on
  /// this machine maps it (CUDA IPC).
  llvm::Expected<std::string> share(Address address);
  /// Maps another process's memory, on whichever GPU it is, into this GPU's addresses.
  llvm::Expected<Address> mapShared(llvm::StringRef handle);
  void unmapShared(Address address);
  static constexpr int64_t kShareable = int64_t(2) << 20;
  /// Lets this GPU's kernels use what another driver of this process, opened for GPU `ordinal`,
  /// allocates there.
  llvm::Error reach(int ordinal);
  /// Host memory that kernels can write; `device` is its address for them.
  llvm::Expected<void *> allocatePinned(int64_t bytes, Address &device);
  void releasePinned(void *memory);
  llvm::Error copyToDevice(Address to, const void *from, int64_t bytes);
  llvm::Error copyToHost(void *to, Address from, int64_t bytes);
  /// Fills with a repeated word; bytes is a multiple of 4.
  llvm::Error fill(Address to, uint32_t word, int64_t bytes);

  /// Loads a cubin; `cudaVersion` (of the NVRTC that made it, 0 if unknown) is for the message when
  /// the driver is too old for it.
  llvm::Expected<Module> loadModule(llvm::StringRef cubin, llvm::StringRef name, int cudaVersion);
  void unloadModule(Module module);
  /// Finds a kernel and allows it `smemBytes` of dynamic shared memory.
  llvm::Expected<Function> function(Module module, llvm::StringRef name, int64_t smemBytes);

  /// Puts a launch with one parameter block into the stream.
  llvm::Error launch(Function function, const LaunchOptions &options, const void *parameter);
  /// Waits for the stream. A kernel that trapped makes this fail and loses the context.
  llvm::Error synchronize();

  /// What `enqueue` puts into the stream, as a graph to replay.
  llvm::Expected<Graph> capture(const std::function<llvm::Error()> &enqueue);
  llvm::Error launchGraph(Graph graph);
  void destroyGraph(Graph graph);

  llvm::Expected<Event> createEvent();
  void destroyEvent(Event event);
  llvm::Error recordEvent(Event event);
  /// Milliseconds between two recorded events; waits for the second.
  llvm::Expected<float> elapsed(Event from, Event to);

private:
  struct Api;
  static llvm::Error start(Api &api, int &count);
  explicit Driver(std::unique_ptr<Api> api);
  std::unique_ptr<Api> api;
};

} // namespace megalith::runtime

#endif // MEGALITH_RUNTIME_DRIVER_H
