//===- cuda_backend.cpp - Running plans on a GPU --------------------------===//

#include "runtime/cuda_backend.h"

#include "runtime/cubin.h"
#include "runtime/error.h"
#include "runtime/fault.h"
#include "runtime/kernel_cache.h"

#include "llvm/Support/MemoryBuffer.h"

#include <algorithm>
#include <cstring>
#include <thread>

namespace megalith::runtime {

/// Of a deadline, what waits that began later have to miss theirs. Waits of one launch begin within
/// its length, well under a millisecond.
static constexpr uint64_t kGraceShare = 8;

llvm::Expected<std::unique_ptr<CudaBackend>> CudaBackend::create(int ordinal) {
  auto driver = Driver::open(ordinal);
  if (!driver)
    return driver.takeError();
  std::unique_ptr<CudaBackend> backend(new CudaBackend(std::move(*driver)));
  auto memory = backend->gpu->allocatePinned(
      int64_t(sizeof(FaultTable) + kFaultPlaces * sizeof(FaultRecord)), backend->faultOnDevice);
  if (!memory)
    return memory.takeError();
  backend->pinned.push_back(*memory);
  backend->faultTable = static_cast<FaultTable *>(*memory);
  *backend->faultTable = {.grace_ns = 0, .places = kFaultPlaces, .unused = 0};
  backend->clearFaults();
  return backend;
}

CudaBackend::~CudaBackend() {
  for (const Loaded &kernel : kernels)
    gpu->unloadModule(kernel.module);
  for (Driver::Address address : mapped)
    gpu->unmapShared(address);
  for (Driver::Address address : allocations)
    gpu->release(address);
  for (void *memory : pinned)
    gpu->releasePinned(memory);
}

llvm::Error CudaBackend::check(const Plan &plan) {
  int64_t smem = 0;
  for (const Kernel &kernel : plan.kernels)
    smem = std::max(smem, kernel.smemBytes);
  return checkDevice(gpu->info(), plan.target, plan.sms, smem, int(plan.cudaVersion));
}

llvm::Expected<int> CudaBackend::loadKernel(const Plan &plan, const Kernel &kernel,
                                            llvm::StringRef folder) {
  if (kernel.cubin.empty())
    return problem("kernel '{0}' has no cubin: compile the plan where NVRTC is installed",
                   kernel.name);
  const std::string file = (folder + "/" + kernel.cubin).str();
  auto cubin = llvm::MemoryBuffer::getFile(file);
  if (!cubin)
    return problem("kernel '{0}': {1}: {2}; compile the plan again", kernel.name, file,
                   cubin.getError().message());
  // The driver takes an address without a size, so a file cut short is refused here.
  const llvm::StringRef bytes = (*cubin)->getBuffer();
  if (const std::string digest = digestOf(bytes);
      !kernel.cubinDigest.empty() && digest != kernel.cubinDigest)
    return problem("kernel '{0}': {1} is damaged or of another compilation: expected the digest "
                   "{2} that plan.json gives but got {3} of {4} bytes; compile the plan again",
                   kernel.name, file, kernel.cubinDigest, digest, bytes.size());
  if (auto parsed = parseCubin(bytes); !parsed)
    return problem("kernel '{0}': {1}: {2}; compile the plan again", kernel.name, file,
                   llvm::toString(parsed.takeError()));
  auto module = gpu->loadModule(bytes, file, int(plan.cudaVersion));
  if (!module)
    return module.takeError();
  auto function = gpu->function(*module, kernel.name, kernel.smemBytes);
  if (!function) {
    gpu->unloadModule(*module);
    return function.takeError();
  }
  kernels.push_back({*module, *function, unsigned(plan.sms), unsigned(kernel.threads),
                     unsigned(kernel.smemBytes)});
  return int(kernels.size()) - 1;
}

llvm::Expected<Backend::Address> CudaBackend::allocate(llvm::StringRef name, int64_t bytes,
                                                       BufferSpace space) {
  if (space == BufferSpace::Pinned) {
    Address address = 0;
    auto memory = gpu->allocatePinned(bytes, address);
    if (!memory)
      return problem("buffer '{0}': {1}", name, llvm::toString(memory.takeError()));
    pinned.push_back(*memory);
    return address;
  }
  auto address = gpu->allocate(bytes);
  if (!address)
    return problem("buffer '{0}': {1}", name, llvm::toString(address.takeError()));
  allocations.push_back(*address);
  return *address;
}

llvm::Expected<Backend::Address> CudaBackend::place(llvm::StringRef name, WeightPacker packer) {
  auto address = allocate(name, weightBytes(packer.weight()), BufferSpace::Device);
  if (!address)
    return address.takeError();
  const int64_t bytes = segmentBytes(packer.weight());
  const unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  std::vector<unsigned char> staging(bytes);
  for (int64_t segment = 0; segment < segmentCount(packer.weight()); ++segment) {
    packer.pack(segment, staging.data(), threads);
    if (auto error = write(*address + uint64_t(segment * bytes), staging.data(), bytes))
      return error;
  }
  return *address;
}

llvm::Expected<Backend::Address> CudaBackend::allocateShared(llvm::StringRef name, int64_t bytes) {
  // Smaller ones would share a block, and a handle, with others.
  return allocate(name, (bytes + Driver::kShareable - 1) / Driver::kShareable * Driver::kShareable,
                  BufferSpace::Device);
}

llvm::Expected<Backend::Address> CudaBackend::mapShared(llvm::StringRef name,
                                                        llvm::StringRef handle) {
  auto address = gpu->mapShared(handle);
  if (!address)
    return problem("{0}: {1}", name, llvm::toString(address.takeError()));
  mapped.push_back(*address);
  return *address;
}

llvm::Error CudaBackend::write(Address to, const void *from, int64_t bytes) {
  return gpu->copyToDevice(to, from, bytes);
}

llvm::Error CudaBackend::read(void *to, Address from, int64_t bytes) {
  return gpu->copyToHost(to, from, bytes);
}

llvm::Error CudaBackend::fill(Address to, uint32_t word, int64_t bytes) {
  return gpu->fill(to, word, bytes);
}

llvm::Error CudaBackend::enqueue(std::span<const PreparedLaunch> launches, Chaining chaining) {
  for (size_t i = 0; i < launches.size(); ++i) {
    const Loaded &kernel = kernels[launches[i].kernel];
    faultTable->grace_ns = launches[i].args.deadline_ns / kGraceShare;
    // Where no launch runs before it, a cooperative launch guarantees that all CTAs fit at once;
    // behind a programmatic edge the CTAs take the places of the launch before (DESIGN section 3).
    const bool programmatic = chaining == Chaining::Programmatic && i > 0 &&
                              !launches[i].isLooping() && !launches[i - 1].isLooping();
    const LaunchOptions options = {.ctas = kernel.ctas,
                                   .threads = kernel.threads,
                                   .smemBytes = kernel.smemBytes,
                                   .programmatic = programmatic,
                                   .cooperative = !programmatic};
    if (auto error = gpu->launch(kernel.function, options, &launches[i].parameters()))
      return error;
  }
  return llvm::Error::success();
}

llvm::Error CudaBackend::run(std::span<const PreparedLaunch> launches, Chaining chaining) {
  clearFaults();
  if (auto error = enqueue(launches, chaining))
    return error;
  return gpu->synchronize();
}

llvm::Error CudaBackend::repeat(std::span<const PreparedLaunch> launches, Chaining chaining,
                                int64_t times) {
  clearFaults();
  auto graph = gpu->capture([&] { return enqueue(launches, chaining); });
  if (!graph)
    return graph.takeError();
  for (int64_t i = 0; i < times; ++i)
    if (auto error = gpu->launchGraph(*graph))
      return error; // with the context gone, so is the graph
  if (auto error = gpu->synchronize())
    return error;
  gpu->destroyGraph(*graph);
  return llvm::Error::success();
}

FaultTable *CudaBackend::faultAddress() {
  return reinterpret_cast<FaultTable *>(faultOnDevice);
}

std::vector<FaultRecord> CudaBackend::faults() {
  return writtenRecords(faultTable);
}

void CudaBackend::clearFaults() {
  std::memset(faultTable + 1, 0, faultTable->places * sizeof(FaultRecord));
}

} // namespace megalith::runtime
