//===- fake_cuda.cpp - A libcuda.so.1 for dry runs without a GPU ----------===//
//
// Device memory is host memory. The fill kernels run on the CPU by the code that the GPU would run;
// a plan's kernels compute nothing, but the numbers of their launches are checked: each step
// descriptor must count up by ones, whether launches come one by one, in a stream or from a graph.
//
// Calibration kernels leave made-up samples.
//
//   FAKE_MEMORY_MB   size of the device (16384)
//   FAKE_DRIVER      the CUDA version that the driver supports (13000)
//   FAKE_SMS         SMs of the device (132)
//   FAKE_DEVICES     how many there are (1)
//   FAKE_FAULT_AT    the launch with this number leaves a fault record, and the context is lost
//   FAKE_CHANGING    buffer slot: the kernel "last" stores the launch number there
//   FAKE_FAULT_IN    the calibration kernel of this name does likewise
//   FAKE_WRONG_IN    that of this name reports three wrong words on SM 1
//   FAKE_NO_FILLS    memory is not filled with words: nobody looks at it
//
//===----------------------------------------------------------------------===//

#include "runtime/device_fill.cuh"
#include "tests/gpu/calibrate/job.h"
#include "tools/bench/device_tools.cuh"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

using namespace megalith;

namespace {

using Status = int;
constexpr Status kSuccess = 0, kOutOfMemory = 2, kLaunchFailed = 719;

struct LaunchConfig {
  unsigned grid[3], block[3], smemBytes;
  void *stream, *attributes;
  unsigned attributeCount;
};

using Work = std::function<void()>;

struct Fake {
  std::map<void *, std::string> functions;
  std::map<uint64_t, size_t> allocations;
  size_t used = 0;
  std::map<const StepDescriptor *, uint64_t> next; ///< number of the next launch
  bool capturing = false, lost = false;
  std::vector<Work> captured;
} fake;

uint64_t setting(const char *name, uint64_t otherwise) {
  const char *text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

size_t memoryBytes() {
  return setting("FAKE_MEMORY_MB", 16384) << 20;
}

void *allocateHost(size_t bytes) {
  return std::aligned_alloc(256, (bytes + 255) / 256 * 256);
}

/// The first place of the fault table.
FaultRecord &recordOf(const LaunchArgs &args) {
  return *reinterpret_cast<FaultRecord *>(args.fault + 1);
}

void runPlanKernel(const std::string &name, const LaunchArgs &args) {
  const uint64_t number = args.step->launch_base + args.launch_in_step;
  uint64_t &expected = fake.next[args.step];
  if (number != expected) {
    std::fprintf(stderr, "fake: launch of %s has number %lu, expected %lu\n", name.c_str(),
                 (unsigned long)number, (unsigned long)expected);
    fake.lost = true;
  }
  expected = number + 1;
  if (number == setting("FAKE_FAULT_AT", ~uint64_t(0))) {
    recordOf(args) = {.valid = 1, .edge = 0, .sm = 5, .warp = 2, .launch = number, .expected = 1};
    fake.lost = true;
  }
  const uint64_t slot = setting("FAKE_CHANGING", kMaxBuffers);
  if (name == "last" && slot < kMaxBuffers)
    std::memcpy(args.buffer[slot], &number, 4);
}

/// What `advance` does for sequences of one row each; the token chosen counts up from the last.
void advance(const LaunchArgs &args) {
  auto *step = const_cast<StepDescriptor *>(args.step);
  step->launch_base += args.launch_in_step;
  if (!(args.flags & kFeedback))
    return;
  auto *list = static_cast<TokenList *>(args.buffer[1]);
  auto *tokens = reinterpret_cast<int32_t *>(list + 1) + int64_t(list->steps) * step->sequences;
  for (int32_t s = 0; s < step->sequences; ++s) {
    ++step->seq[s].start;
    ++step->row_pos[s];
    ++step->row_token[s];
    if (list->steps < list->capacity)
      tokens[s] = step->row_token[s];
  }
  ++list->steps;
}

bool named(const char *variable, const std::string &name) {
  const char *text = std::getenv(variable);
  return text && name == text;
}

void runCalibration(const std::string &name, const LaunchArgs &args) {
  if (named("FAKE_FAULT_IN", name)) {
    recordOf(args) = {.valid = 1, .edge = 7, .sm = 5, .warp = 2, .launch = 3, .expected = 1};
    fake.lost = true;
    return;
  }
  const auto &job = *static_cast<const calibrate::Job *>(args.buffer[calibrate::kJob]);
  auto *samples = static_cast<calibrate::Sample *>(args.buffer[calibrate::kSamples]) +
                  args.launch_in_step * job.sms;
  for (uint32_t sm = 0; sm < job.sms; ++sm) {
    calibrate::Sample &sample = samples[sm];
    sample.begin = 1'000'000 + 50'000 * args.launch_in_step;
    sample.end = sample.begin + 5'000 + 100 * job.rounds;
    sample.pieces = job.rounds;
    sample.wrong = sm == 1 && named("FAKE_WRONG_IN", name) ? 3 : 0;
    const uint64_t after[] = {1'000, 5'000, 2'000, 3'000, 4'000}; // as the stamps of a hop
    for (int i = 0; i < 5; ++i)
      sample.sum[i] = sample.begin + after[i];
  }
}

/// What a launch does; parameters are taken now, as a launch does.
Work workOf(const std::string &name, const void *parameter) {
  if (name == "megalith_read")
    return [] {};
  if (name == "advance")
    return [args = *static_cast<const LaunchArgs *>(parameter)] { advance(args); };
  if (name == "megalith_fill_segment")
    return [job = *static_cast<const FillSegment *>(parameter)] {
      if (job.pieces > (1u << 24))
        return; // the noise for the read ceiling
      for (uint32_t i = 0; i < job.pieces; ++i)
        reinterpret_cast<FillPiece *>(job.out)[i] = fill_segment_piece(job, i);
    };
  if (name == "megalith_fill_pages")
    return [job = *static_cast<const FillPages *>(parameter)] {
      const uint32_t pieces = fill_page_pieces(job);
      for (int32_t page = job.first; page < job.count; ++page)
        for (uint32_t i = 0; i < pieces; ++i)
          reinterpret_cast<FillPiece *>(job.pool)[int64_t(job.pages[page]) * pieces + i] =
              fill_page_piece(job, page, i);
    };
  const auto args = *static_cast<const LaunchArgs *>(parameter);
  if (name.starts_with("calibrate_"))
    return [name, args] { runCalibration(name, args); };
  return [name, args] { runPlanKernel(name, args); };
}

Status state() {
  return fake.lost ? kLaunchFailed : kSuccess;
}

double now() {
  using namespace std::chrono;
  return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

} // namespace

#define FAKE extern "C" Status

// NVRTC looks this one up if a libcuda is loaded.
FAKE cuGetExportTable(const void **table, const void *) {
  *table = nullptr;
  return 1;
}
FAKE cuInit(unsigned) {
  return kSuccess;
}
FAKE cuDriverGetVersion(int *version) {
  *version = int(setting("FAKE_DRIVER", 13000));
  return kSuccess;
}
FAKE cuGetErrorName(Status status, const char **name) {
  *name = status == kLaunchFailed ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR";
  return kSuccess;
}
FAKE cuGetErrorString(Status, const char **text) {
  *text = "the fake's";
  return kSuccess;
}
FAKE cuDeviceGetCount(int *count) {
  *count = int(setting("FAKE_DEVICES", 1));
  return kSuccess;
}
FAKE cuDeviceGet(int *device, int) {
  *device = 0;
  return kSuccess;
}
FAKE cuDeviceGetName(char *name, int size, int) {
  std::snprintf(name, size_t(size), "Fake GPU");
  return kSuccess;
}
FAKE cuDeviceGetAttribute(int *value, int attribute, int) {
  const std::map<int, int> values = {
      {16, int(setting("FAKE_SMS", 132))}, {75, 9}, {76, 0}, {95, 1}, {97, 232448}};
  *value = values.at(attribute);
  return kSuccess;
}
FAKE cuDeviceTotalMem_v2(size_t *bytes, int) {
  *bytes = memoryBytes();
  return kSuccess;
}
FAKE cuDevicePrimaryCtxRetain(void **context, int) {
  *context = &fake;
  return kSuccess;
}
FAKE cuDevicePrimaryCtxRelease_v2(int) {
  return kSuccess;
}
struct IpcHandle {
  char bytes[64];
};
FAKE cuCtxEnablePeerAccess(void *, unsigned) {
  return 1; // there is no other GPU
}
FAKE cuIpcGetMemHandle(IpcHandle *, uint64_t) {
  return 1; // other processes see none of this memory
}
FAKE cuIpcOpenMemHandle_v2(uint64_t *, IpcHandle, unsigned) {
  return 1;
}
FAKE cuIpcCloseMemHandle(uint64_t) {
  return 0;
}
FAKE cuCtxSetCurrent(void *) {
  return kSuccess;
}
FAKE cuMemGetInfo_v2(size_t *free, size_t *total) {
  *total = memoryBytes();
  *free = *total - fake.used;
  return kSuccess;
}
FAKE cuMemAlloc_v2(uint64_t *address, size_t bytes) {
  if (fake.used + bytes > memoryBytes())
    return kOutOfMemory;
  *address = reinterpret_cast<uint64_t>(allocateHost(bytes));
  fake.allocations[*address] = bytes;
  fake.used += bytes;
  return kSuccess;
}
FAKE cuMemFree_v2(uint64_t address) {
  fake.used -= fake.allocations.at(address);
  fake.allocations.erase(address);
  std::free(reinterpret_cast<void *>(address));
  return kSuccess;
}
FAKE cuMemHostAlloc(void **memory, size_t bytes, unsigned) {
  *memory = allocateHost(bytes);
  return kSuccess;
}
FAKE cuMemFreeHost(void *memory) {
  std::free(memory);
  return kSuccess;
}
FAKE cuMemHostGetDevicePointer_v2(uint64_t *address, void *memory, unsigned) {
  *address = reinterpret_cast<uint64_t>(memory);
  return kSuccess;
}
FAKE cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *) {
  std::memcpy(reinterpret_cast<void *>(to), from, bytes);
  return state();
}
FAKE cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *) {
  std::memcpy(to, reinterpret_cast<void *>(from), bytes);
  return state();
}
FAKE cuMemsetD32Async(uint64_t to, unsigned word, size_t count, void *) {
  if (!std::getenv("FAKE_NO_FILLS"))
    std::fill_n(reinterpret_cast<uint32_t *>(to), count, word);
  return state();
}
FAKE cuModuleLoadData(void **module, const void *) {
  *module = std::malloc(1);
  return kSuccess;
}
FAKE cuModuleUnload(void *module) {
  std::free(module);
  return kSuccess;
}
FAKE cuModuleGetFunction(void **function, void *, const char *name) {
  *function = std::malloc(1); // lives as long as the process, as a number would
  fake.functions[*function] = name;
  return kSuccess;
}
FAKE cuFuncSetAttribute(void *, int, int) {
  return kSuccess;
}
FAKE cuLaunchKernelEx(const LaunchConfig *, void *function, void **parameters, void **) {
  Work work = workOf(fake.functions.at(function), parameters[0]);
  if (fake.capturing)
    fake.captured.push_back(std::move(work));
  else if (!fake.lost)
    work();
  return kSuccess; // what goes wrong is found by waiting
}
FAKE cuStreamCreate(void **stream, unsigned) {
  *stream = &fake;
  return kSuccess;
}
FAKE cuStreamDestroy_v2(void *) {
  std::fprintf(stderr, "fake: %zu allocations left\n", fake.allocations.size());
  return kSuccess;
}
FAKE cuStreamSynchronize(void *) {
  return state();
}
FAKE cuStreamBeginCapture_v2(void *, int) {
  fake.capturing = true;
  return kSuccess;
}
FAKE cuStreamEndCapture(void *, void **graph) {
  fake.capturing = false;
  *graph = new std::vector<Work>(std::move(fake.captured));
  fake.captured.clear();
  return kSuccess;
}
FAKE cuGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long) {
  *executable = new std::vector<Work>(*static_cast<std::vector<Work> *>(graph));
  return kSuccess;
}
FAKE cuGraphDestroy(void *graph) {
  delete static_cast<std::vector<Work> *>(graph);
  return kSuccess;
}
FAKE cuGraphExecDestroy(void *graph) {
  return cuGraphDestroy(graph);
}
FAKE cuGraphLaunch(void *graph, void *) {
  for (const Work &work : *static_cast<std::vector<Work> *>(graph))
    if (!fake.lost)
      work();
  return kSuccess;
}
FAKE cuEventCreate(void **event, unsigned) {
  *event = new double(0);
  return kSuccess;
}
FAKE cuEventDestroy_v2(void *event) {
  delete static_cast<double *>(event);
  return kSuccess;
}
FAKE cuEventRecord(void *event, void *) {
  *static_cast<double *>(event) = now();
  return kSuccess;
}
FAKE cuEventSynchronize(void *) {
  return state();
}
FAKE cuEventElapsedTime(float *milliseconds, void *from, void *to) {
  *milliseconds = float(*static_cast<double *>(to) - *static_cast<double *>(from));
  return kSuccess;
}
