//===- driver.cpp - libcuda by dlopen -------------------------------------===//
//
// Declarations of our own: the driver's C interface is stable, and its "_v2" symbols are what
// cuda.h has mapped these names to since CUDA 4.
//
//===----------------------------------------------------------------------===//

#include "runtime/driver.h"

#include "runtime/error.h"

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>

namespace megalith::runtime {

namespace {

using Status = int;
constexpr Status kSuccess = 0, kOutOfMemory = 2, kNoDevice = 100, kInvalidImage = 200,
                 kNoBinary = 209, kUnsupportedPtx = 222, kInvalidSource = 300, kNotFound = 500,
                 kTooLargeCooperative = 720, kLaunchOutOfResources = 701;

enum Attribute {
  kMultiprocessors = 16,
  kComputeMajor = 75,
  kComputeMinor = 76,
  kCooperativeLaunch = 95,
  kMaxSmemOptin = 97,
};
constexpr int kFunctionMaxDynamicSmem = 8, kFunctionCarveout = 9;
constexpr int kAllShared = 100; // percent of an SM's memory that is shared memory, not cache
constexpr unsigned kNonBlockingStream = 1, kEventDefault = 0, kPinnedMapped = 2,
                   kCaptureThreadLocal = 1;

// CUlaunchConfig and CUlaunchAttribute.
struct LaunchAttribute {
  int id;
  char padding[4];
  union {
    int value;
    char bytes[64];
  };
};
static_assert(sizeof(LaunchAttribute) == 72);
constexpr int kAttributeCooperative = 2, kAttributeProgrammatic = 6;
struct LaunchConfig {
  unsigned gridX, gridY, gridZ, blockX, blockY, blockZ, smemBytes;
  void *stream;
  LaunchAttribute *attributes;
  unsigned attributeCount;
};
static_assert(sizeof(LaunchConfig) == 56);

struct IpcHandle {
  char bytes[64];
};
constexpr unsigned kLazyPeerAccess = 1;

} // namespace

struct Driver::Api {
  void *stream = nullptr;
  int device = -1;
  bool retained = false;
  DeviceInfo info;

  Status (*cuInit)(unsigned);
  Status (*cuDriverGetVersion)(int *);
  Status (*cuGetErrorName)(Status, const char **);
  Status (*cuGetErrorString)(Status, const char **);
  Status (*cuDeviceGetCount)(int *);
  Status (*cuDeviceGet)(int *, int);
  Status (*cuDeviceGetName)(char *, int, int);
  Status (*cuDeviceGetAttribute)(int *, int, int);
  Status (*cuDeviceTotalMem_v2)(size_t *, int);
  Status (*cuDevicePrimaryCtxRetain)(void **, int);
  Status (*cuDevicePrimaryCtxRelease_v2)(int);
  Status (*cuCtxSetCurrent)(void *);
  Status (*cuMemGetInfo_v2)(size_t *, size_t *);
  Status (*cuMemAlloc_v2)(uint64_t *, size_t);
  Status (*cuMemFree_v2)(uint64_t);
  Status (*cuMemHostAlloc)(void **, size_t, unsigned);
  Status (*cuMemFreeHost)(void *);
  Status (*cuMemHostGetDevicePointer_v2)(uint64_t *, void *, unsigned);
  Status (*cuMemcpyHtoDAsync_v2)(uint64_t, const void *, size_t, void *);
  Status (*cuMemcpyDtoHAsync_v2)(void *, uint64_t, size_t, void *);
  Status (*cuMemsetD32Async)(uint64_t, unsigned, size_t, void *);
  Status (*cuModuleLoadData)(void **, const void *);
  Status (*cuModuleUnload)(void *);
  Status (*cuModuleGetFunction)(void **, void *, const char *);
  Status (*cuFuncSetAttribute)(void *, int, int);
  Status (*cuLaunchKernelEx)(const LaunchConfig *, void *, void **, void **);
  Status (*cuStreamCreate)(void **, unsigned);
  Status (*cuStreamDestroy_v2)(void *);
  Status (*cuStreamSynchronize)(void *);
  Status (*cuStreamBeginCapture_v2)(void *, int);
  Status (*cuStreamEndCapture)(void *, void **);
  Status (*cuGraphInstantiateWithFlags)(void **, void *, unsigned long long);
  Status (*cuGraphDestroy)(void *);
  Status (*cuGraphExecDestroy)(void *);
  Status (*cuGraphLaunch)(void *, void *);
  Status (*cuEventCreate)(void **, unsigned);
  Status (*cuEventDestroy_v2)(void *);
  Status (*cuEventRecord)(void *, void *);
  Status (*cuEventSynchronize)(void *);
  Status (*cuEventElapsedTime)(float *, void *, void *);
  Status (*cuCtxEnablePeerAccess)(void *, unsigned);
  Status (*cuIpcGetMemHandle)(IpcHandle *, uint64_t);
  Status (*cuIpcOpenMemHandle_v2)(uint64_t *, IpcHandle, unsigned);
  Status (*cuIpcCloseMemHandle)(uint64_t);

  /// Resolves everything, or says which function this driver lacks.
  llvm::Error resolve(void *handle) {
    const char *missing = nullptr;
    auto get = [&](auto &function, const char *name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
      if (!function && !missing)
        missing = name;
    };
#define MEGALITH_RESOLVE(name) get(name, #name)
    MEGALITH_RESOLVE(cuInit);
    MEGALITH_RESOLVE(cuDriverGetVersion);
    MEGALITH_RESOLVE(cuGetErrorName);
    MEGALITH_RESOLVE(cuGetErrorString);
    MEGALITH_RESOLVE(cuDeviceGetCount);
    MEGALITH_RESOLVE(cuDeviceGet);
    MEGALITH_RESOLVE(cuDeviceGetName);
    MEGALITH_RESOLVE(cuDeviceGetAttribute);
    MEGALITH_RESOLVE(cuDeviceTotalMem_v2);
    MEGALITH_RESOLVE(cuDevicePrimaryCtxRetain);
    MEGALITH_RESOLVE(cuDevicePrimaryCtxRelease_v2);
    MEGALITH_RESOLVE(cuCtxSetCurrent);
    MEGALITH_RESOLVE(cuMemGetInfo_v2);
    MEGALITH_RESOLVE(cuMemAlloc_v2);
    MEGALITH_RESOLVE(cuMemFree_v2);
    MEGALITH_RESOLVE(cuMemHostAlloc);
    MEGALITH_RESOLVE(cuMemFreeHost);
    MEGALITH_RESOLVE(cuMemHostGetDevicePointer_v2);
    MEGALITH_RESOLVE(cuMemcpyHtoDAsync_v2);
    MEGALITH_RESOLVE(cuMemcpyDtoHAsync_v2);
    MEGALITH_RESOLVE(cuMemsetD32Async);
    MEGALITH_RESOLVE(cuModuleLoadData);
    MEGALITH_RESOLVE(cuModuleUnload);
    MEGALITH_RESOLVE(cuModuleGetFunction);
    MEGALITH_RESOLVE(cuFuncSetAttribute);
    MEGALITH_RESOLVE(cuLaunchKernelEx);
    MEGALITH_RESOLVE(cuStreamCreate);
    MEGALITH_RESOLVE(cuStreamDestroy_v2);
    MEGALITH_RESOLVE(cuStreamSynchronize);
    MEGALITH_RESOLVE(cuStreamBeginCapture_v2);
    MEGALITH_RESOLVE(cuStreamEndCapture);
    MEGALITH_RESOLVE(cuGraphInstantiateWithFlags);
    MEGALITH_RESOLVE(cuGraphDestroy);
    MEGALITH_RESOLVE(cuGraphExecDestroy);
    MEGALITH_RESOLVE(cuGraphLaunch);
    MEGALITH_RESOLVE(cuEventCreate);
    MEGALITH_RESOLVE(cuEventDestroy_v2);
    MEGALITH_RESOLVE(cuEventRecord);
    MEGALITH_RESOLVE(cuEventSynchronize);
    MEGALITH_RESOLVE(cuEventElapsedTime);
    MEGALITH_RESOLVE(cuCtxEnablePeerAccess);
    MEGALITH_RESOLVE(cuIpcGetMemHandle);
    MEGALITH_RESOLVE(cuIpcOpenMemHandle_v2);
    MEGALITH_RESOLVE(cuIpcCloseMemHandle);
#undef MEGALITH_RESOLVE
    if (missing)
      return problem(
          "the GPU driver's libcuda.so.1 has no {0}: it is too old; CUDA 13 needs driver "
          "580 or newer",
          missing);
    return llvm::Error::success();
  }

  /// "CUDA_ERROR_X (text)"
  std::string text(Status status) const {
    const char *name = nullptr, *words = nullptr;
    cuGetErrorName(status, &name);
    cuGetErrorString(status, &words);
    return llvm::formatv("{0} ({1})", name ? name : std::to_string(status).c_str(),
                         words ? words : "unknown")
        .str();
  }

  llvm::Error check(Status status, const char *doing) const {
    if (status == kSuccess)
      return llvm::Error::success();
    return problem("GPU: {0}: {1}", doing, text(status));
  }
};

std::string cudaVersionText(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

llvm::Error checkDevice(const DeviceInfo &device, llvm::StringRef target, int64_t sms,
                        int64_t smemBytes, int cudaVersion) {
  llvm::StringRef digits = target;
  int sm = 0;
  if (!digits.consume_front("sm_") || digits.rtrim("af").getAsInteger(10, sm))
    return problem("target '{0}': expected something like sm_90a", target);
  const int have = device.computeMajor * 10 + device.computeMinor;
  // Kernels use features of one architecture ("a"), which no other one runs.
  if (sm != have)
    return problem("the plan is for {0}, the GPU ({1}) is sm_{2}: compile with --target for it",
                   target, device.name, have);
  if (cudaVersion > 0 && device.driverVersion / 1000 < cudaVersion / 1000)
    return problem("the cubins were made by CUDA {0}, the GPU driver supports CUDA {1}: install a "
                   "newer driver (CUDA 13 needs 580 or newer)",
                   cudaVersionText(cudaVersion), cudaVersionText(device.driverVersion));
  if (sms > device.sms)
    return problem("the plan needs {0} SMs, the GPU ({1}) has {2}: compile with --sms {2}", sms,
                   device.name, device.sms);
  if (smemBytes > device.smemBytes)
    return problem("a kernel needs {0} bytes of shared memory, the GPU ({1}) allows {2} per CTA",
                   smemBytes, device.name, device.smemBytes);
  return llvm::Error::success();
}

Driver::Driver(std::unique_ptr<Api> api) : api(std::move(api)) {}

Driver::~Driver() {
  if (api->stream)
    api->cuStreamDestroy_v2(api->stream);
  if (api->retained)
    api->cuDevicePrimaryCtxRelease_v2(api->device);
}

/// The driver, initialised, and how many devices it has.
llvm::Error Driver::start(Api &api, int &count) {
  void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (!handle)
    return problem("no GPU driver: {0}; install NVIDIA's driver, or run kernels on "
                   "the CPU (megalith run --backend host)",
                   dlerror());
  if (auto error = api.resolve(handle))
    return error;
  if (Status status = api.cuInit(0)) {
    if (status == kNoDevice)
      return problem("no GPU: {0}; check nvidia-smi, or run kernels on the CPU (megalith run "
                     "--backend host)",
                     api.text(status));
    return problem("the GPU driver does not start: {0}; check nvidia-smi", api.text(status));
  }
  return api.check(api.cuDeviceGetCount(&count), "counting devices");
}

llvm::Expected<int> Driver::count() {
  Api api;
  int count = 0;
  if (auto error = start(api, count))
    return error;
  return count;
}

llvm::Expected<std::unique_ptr<Driver>> Driver::open(int ordinal) {
  auto api = std::make_unique<Api>();
  int count = 0;
  if (auto error = start(*api, count))
    return error;
  if (ordinal < 0 || ordinal >= count)
    return problem("no GPU {0}: this machine has {1}, numbered from 0", ordinal, count);
  if (auto error = api->check(api->cuDeviceGet(&api->device, ordinal), "opening the device"))
    return error;

  char name[256] = {};
  size_t memory = 0;
  int cooperative = 0, smem = 0;
  DeviceInfo &info = api->info;
  const int device = api->device;
  for (Status status :
       {api->cuDeviceGetName(name, sizeof name, device), api->cuDeviceTotalMem_v2(&memory, device),
        api->cuDriverGetVersion(&info.driverVersion),
        api->cuDeviceGetAttribute(&info.sms, kMultiprocessors, device),
        api->cuDeviceGetAttribute(&info.computeMajor, kComputeMajor, device),
        api->cuDeviceGetAttribute(&info.computeMinor, kComputeMinor, device),
        api->cuDeviceGetAttribute(&cooperative, kCooperativeLaunch, device),
        api->cuDeviceGetAttribute(&smem, kMaxSmemOptin, device)})
    if (auto error = api->check(status, "reading the device's properties"))
      return error;
  info.name = name;
  info.memoryBytes = int64_t(memory);
  info.smemBytes = smem;
  info.cooperative = cooperative;

  std::unique_ptr<Driver> driver(new Driver(std::move(api)));
  Api &opened = *driver->api;
  void *context = nullptr;
  if (auto error =
          opened.check(opened.cuDevicePrimaryCtxRetain(&context, device), "creating a context"))
    return error;
  opened.retained = true;
  if (auto error = opened.check(opened.cuCtxSetCurrent(context), "entering the context"))
    return error;
  if (auto error = opened.check(opened.cuStreamCreate(&opened.stream, kNonBlockingStream),
                                "creating a stream"))
    return error;
  return driver;
}

const DeviceInfo &Driver::info() const {
  return api->info;
}

llvm::Expected<Driver::Address> Driver::allocate(int64_t bytes) {
  uint64_t address = 0;
  const Status status = api->cuMemAlloc_v2(&address, size_t(bytes));
  if (status == kOutOfMemory) {
    size_t free = 0, total = 0;
    api->cuMemGetInfo_v2(&free, &total);
    return problem("GPU memory: {0} bytes do not fit, {1} of {2} are free; end other programs on "
                   "the GPU, or run fewer rows, shorter contexts or a smaller model",
                   bytes, free, total);
  }
  if (auto error = api->check(status, "allocating memory"))
    return error;
  return address;
}

llvm::Expected<int64_t> Driver::freeBytes() {
  size_t free = 0, total = 0;
  if (auto error = api->check(api->cuMemGetInfo_v2(&free, &total), "asking for free memory"))
    return error;
  return int64_t(free);
}

void Driver::release(Address address) {
  api->cuMemFree_v2(address);
}

llvm::Expected<std::string> Driver::share(Address address) {
  IpcHandle handle;
  if (auto error = api->check(api->cuIpcGetMemHandle(&handle, address),
                              "sharing memory with other processes"))
    return error;
  return std::string(handle.bytes, sizeof handle.bytes);
}

llvm::Expected<Driver::Address> Driver::mapShared(llvm::StringRef text) {
  IpcHandle handle;
  if (text.size() != sizeof handle.bytes)
    return problem("a handle of {0} bytes, expected {1}: another rank does not run on a GPU",
                   text.size(), sizeof handle.bytes);
  std::memcpy(handle.bytes, text.data(), sizeof handle.bytes);
  uint64_t address = 0;
  if (auto error = api->check(api->cuIpcOpenMemHandle_v2(&address, handle, kLazyPeerAccess),
                              "mapping another rank's memory (its GPU must be reachable from this "
                              "one: nvidia-smi topo -p2p w)"))
    return error;
  return address;
}

void Driver::unmapShared(Address address) {
  api->cuIpcCloseMemHandle(address);
}

llvm::Error Driver::reach(int ordinal) {
  int device = 0;
  void *context = nullptr;
  if (auto error = api->check(api->cuDeviceGet(&device, ordinal), "opening another device"))
    return error;
  // Its own driver keeps the context; this only names it.
  if (auto error = api->check(api->cuDevicePrimaryCtxRetain(&context, device), "finding a context"))
    return error;
  const Status status = api->cuCtxEnablePeerAccess(context, 0);
  api->cuDevicePrimaryCtxRelease_v2(device);
  return api->check(status, "reaching another GPU's memory (nvidia-smi topo -p2p w)");
}

llvm::Expected<void *> Driver::allocatePinned(int64_t bytes, Address &device) {
  void *memory = nullptr;
  if (auto error = api->check(api->cuMemHostAlloc(&memory, size_t(bytes), kPinnedMapped),
                              "allocating pinned host memory"))
    return error;
  if (auto error = api->check(api->cuMemHostGetDevicePointer_v2(&device, memory, 0),
                              "mapping pinned host memory")) {
    api->cuMemFreeHost(memory);
    return error;
  }
  return memory;
}

void Driver::releasePinned(void *memory) {
  api->cuMemFreeHost(memory);
}

llvm::Error Driver::copyToDevice(Address to, const void *from, int64_t bytes) {
  // Pageable memory: the call returns once the source has been taken.
  return api->check(api->cuMemcpyHtoDAsync_v2(to, from, size_t(bytes), api->stream),
                    "copying to the device");
}

llvm::Error Driver::copyToHost(void *to, Address from, int64_t bytes) {
  if (auto error = api->check(api->cuMemcpyDtoHAsync_v2(to, from, size_t(bytes), api->stream),
                              "copying from the device"))
    return error;
  return synchronize();
}

llvm::Error Driver::fill(Address to, uint32_t word, int64_t bytes) {
  return api->check(api->cuMemsetD32Async(to, word, size_t(bytes / 4), api->stream),
                    "filling memory");
}

llvm::Expected<Driver::Module> Driver::loadModule(llvm::StringRef cubin, llvm::StringRef name,
                                                  int cudaVersion) {
  void *module = nullptr;
  const Status status = api->cuModuleLoadData(&module, cubin.data());
  if (status == kNoBinary || status == kInvalidImage || status == kUnsupportedPtx ||
      status == kInvalidSource) {
    const std::string made =
        cudaVersion ? " (made by CUDA " + cudaVersionText(cudaVersion) + ")" : "";
    return problem("{0}{1} does not load on {2}, sm_{3}{4}, whose driver supports CUDA {5}: {6}; "
                   "compile for this GPU, or install a newer driver",
                   name, made, api->info.name, api->info.computeMajor, api->info.computeMinor,
                   cudaVersionText(api->info.driverVersion), api->text(status));
  }
  if (auto error = api->check(status, "loading a cubin"))
    return error;
  return module;
}

void Driver::unloadModule(Module module) {
  api->cuModuleUnload(module);
}

llvm::Expected<Driver::Function> Driver::function(Module module, llvm::StringRef name,
                                                  int64_t smemBytes) {
  void *function = nullptr;
  const Status status = api->cuModuleGetFunction(&function, module, name.str().c_str());
  if (status == kNotFound)
    return problem("the cubin has no kernel '{0}'; compile the plan again", name);
  if (auto error = api->check(status, "finding a kernel"))
    return error;
  if (api->cuFuncSetAttribute(function, kFunctionMaxDynamicSmem, int(smemBytes)) != kSuccess)
    return problem("kernel '{0}' needs {1} bytes of shared memory, the GPU ({2}) allows {3} per "
                   "CTA, static included",
                   name, smemBytes, api->info.name, api->info.smemBytes);
  // One split for all: an SM must be empty to change it, so a kernel that asks for another could
  // not start beside the launch before it. A wish, so a driver that ignores it is no error.
  api->cuFuncSetAttribute(function, kFunctionCarveout, kAllShared);
  return function;
}

llvm::Error Driver::launch(Function function, const LaunchOptions &options, const void *parameter) {
  LaunchAttribute attributes[2] = {};
  LaunchConfig config = {options.ctas, 1,          1, options.threads, 1, 1, options.smemBytes,
                         api->stream,  attributes, 0};
  if (options.cooperative)
    attributes[config.attributeCount++] = {kAttributeCooperative, {}, {1}};
  if (options.programmatic)
    attributes[config.attributeCount++] = {kAttributeProgrammatic, {}, {1}};
  void *parameters[] = {const_cast<void *>(parameter)};
  const Status status = api->cuLaunchKernelEx(&config, function, parameters, nullptr);
  if (status == kTooLargeCooperative || status == kLaunchOutOfResources)
    return problem(
        "launch of {0} CTAs with {1} threads and {2} bytes of shared memory does not fit "
        "the GPU ({3}, {4} SMs) at once: {5}",
        options.ctas, options.threads, options.smemBytes, api->info.name, api->info.sms,
        api->text(status));
  return api->check(status, "launching a kernel");
}

llvm::Error Driver::synchronize() {
  return api->check(api->cuStreamSynchronize(api->stream), "running kernels");
}

llvm::Expected<Driver::Graph> Driver::capture(const std::function<llvm::Error()> &enqueue) {
  if (auto error = api->check(api->cuStreamBeginCapture_v2(api->stream, kCaptureThreadLocal),
                              "beginning a capture"))
    return error;
  llvm::Error failed = enqueue();
  void *graph = nullptr, *executable = nullptr;
  llvm::Error ended = api->check(api->cuStreamEndCapture(api->stream, &graph), "ending a capture");
  if (failed || ended) {
    if (graph)
      api->cuGraphDestroy(graph);
    return llvm::joinErrors(std::move(failed), std::move(ended));
  }
  const Status status = api->cuGraphInstantiateWithFlags(&executable, graph, 0);
  api->cuGraphDestroy(graph);
  if (auto error = api->check(status, "instantiating a graph"))
    return error;
  return executable;
}

llvm::Error Driver::launchGraph(Graph graph) {
  return api->check(api->cuGraphLaunch(graph, api->stream), "launching a graph");
}

void Driver::destroyGraph(Graph graph) {
  api->cuGraphExecDestroy(graph);
}

llvm::Expected<Driver::Event> Driver::createEvent() {
  void *event = nullptr;
  if (auto error = api->check(api->cuEventCreate(&event, kEventDefault), "creating an event"))
    return error;
  return event;
}

void Driver::destroyEvent(Event event) {
  api->cuEventDestroy_v2(event);
}

llvm::Error Driver::recordEvent(Event event) {
  return api->check(api->cuEventRecord(event, api->stream), "recording an event");
}

llvm::Expected<float> Driver::elapsed(Event from, Event to) {
  float milliseconds = 0;
  if (auto error = api->check(api->cuEventSynchronize(to), "waiting for an event"))
    return error;
  if (auto error = api->check(api->cuEventElapsedTime(&milliseconds, from, to), "timing"))
    return error;
  return milliseconds;
}

} // namespace megalith::runtime
