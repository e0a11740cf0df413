//===- host_backend.cpp - Running plans on the CPU ------------------------===//

#include "runtime/host_backend.h"

#include "runtime/error.h"
#include "runtime/packing.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/MemoryBuffer.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <random>
#include <sys/mman.h>
#include <unistd.h>

namespace megalith::runtime {

HostBackend::~HostBackend() {
  machine.reset(); // it knows the memory that goes now
  for (const SharedMemory &shared : sharedMemory) {
    ::munmap(shared.memory, shared.bytes);
    if (!shared.file.empty())
      ::shm_unlink(shared.file.c_str());
  }
  for (void *memory : allocations)
    std::free(memory);
}

void HostBackend::reseed(uint64_t seed) {
  options.seed = seed;
  if (machine)
    machine->reseed(seed);
}

llvm::Error HostBackend::check(const Plan &plan) {
  if (machine)
    return problem("a host backend runs one plan; make another one");
  int64_t smem = 1024;
  for (const Kernel &kernel : plan.kernels)
    smem = std::max(smem, kernel.smemBytes);
  host::Options machineOptions;
  machineOptions.sms = int(plan.sms);
  machineOptions.smem_bytes = uint32_t(smem);
  machineOptions.seed = options.seed;
  machineOptions.chaos = options.chaos;
  machineOptions.log = options.log;
  machine = std::make_unique<host::Machine>(machineOptions);
  machine->registerBuffer(&faultTable, sizeof faultTable, "fault table");
  return llvm::Error::success();
}

llvm::Expected<int> HostBackend::loadKernel(const Plan &plan, const Kernel &kernel,
                                            llvm::StringRef folder) {
  const std::string file = (folder + "/" + kernel.file).str();
  auto source = llvm::MemoryBuffer::getFile(file);
  if (!source)
    return problem("kernel '{0}': {1}: {2}; compile the plan again", kernel.name, file,
                   source.getError().message());
  const std::string text =
      (options.log ? "#define MEGALITH_HOST_LOG\n" : "") + (*source)->getBuffer().str();
  auto library = compileForHost(text, kernel.file, options.compile);
  if (!library)
    return library.takeError();
  auto record = hostKernel(*library, kernel.name);
  if (!record)
    return record.takeError();
  libraries.push_back(std::move(*library)); // moving it moves no code
  kernels.push_back(*record);
  edges.push_back(kernel.edges);
  return int(kernels.size()) - 1;
}

llvm::Expected<Backend::Address> HostBackend::allocate(llvm::StringRef name, int64_t bytes,
                                                       BufferSpace space) {
  void *memory = std::aligned_alloc(256, size_t(bytes + 255) / 256 * 256);
  if (!memory)
    return problem("buffer '{0}': {1} bytes do not fit into memory", name, bytes);
  allocations.push_back(memory);
  machine->registerBuffer(memory, size_t(bytes), name.str());
  return reinterpret_cast<Address>(memory);
}

llvm::Expected<Backend::Address> HostBackend::place(llvm::StringRef name, WeightPacker packer) {
  const int64_t bytes = segmentBytes(packer.weight());
  const int64_t total = weightBytes(packer.weight());
  void *base = host::reserveAddresses(size_t(total));
  if (!base)
    return problem("weight '{0}': no {1} bytes of address space", name, total);
  // The generator is copied into the machine, hence shared.
  struct Segments {
    WeightPacker packer;
    std::vector<std::vector<unsigned char>> packed;
  };
  auto segments = std::make_shared<Segments>(
      Segments{std::move(packer), std::vector<std::vector<unsigned char>>(total / bytes)});
  machine->registerGenerated(base, size_t(total), name.str(),
                             [segments, bytes](uint64_t offset, uint32_t count, void *to) {
                               auto *out = static_cast<unsigned char *>(to);
                               while (count) {
                                 const int64_t segment = int64_t(offset) / bytes;
                                 std::vector<unsigned char> &packed = segments->packed[segment];
                                 if (packed.empty()) {
                                   packed.resize(bytes);
                                   segments->packer.pack(segment, packed.data());
                                 }
                                 const int64_t within = int64_t(offset) % bytes;
                                 const uint32_t step =
                                     uint32_t(std::min<int64_t>(count, bytes - within));
                                 std::memcpy(out, packed.data() + within, step);
                                 out += step;
                                 offset += step;
                                 count -= step;
                               }
                             });
  return reinterpret_cast<Address>(base);
}

llvm::Expected<Backend::Address> HostBackend::allocateShared(llvm::StringRef name, int64_t bytes) {
  // Process numbers come again, in containers soon, and what died leaves its files.
  std::random_device random;
  const std::string file =
      llvm::formatv("/megalith-{0:x-8}{1:x-8}{2:x-8}", random(), random(), random()).str();
  const int descriptor = ::shm_open(file.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600);
  const size_t size = size_t(bytes + 255) / 256 * 256;
  const bool isThere = descriptor >= 0 && ::ftruncate(descriptor, off_t(size)) == 0;
  void *memory = isThere ? ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0)
                         : MAP_FAILED;
  if (descriptor >= 0)
    ::close(descriptor);
  if (memory == MAP_FAILED) {
    ::shm_unlink(file.c_str());
    return problem("buffer '{0}': {1} bytes of /dev/shm{2}: {3}", name, bytes, file,
                   std::strerror(errno));
  }
  sharedMemory.push_back({memory, size, file});
  machine->registerBuffer(memory, size_t(bytes), name.str());
  machine->expectOthers();
  return reinterpret_cast<Address>(memory);
}

llvm::Expected<std::string> HostBackend::share(Address address) {
  for (const SharedMemory &shared : sharedMemory)
    if (reinterpret_cast<Address>(shared.memory) == address)
      return shared.file + " " + std::to_string(shared.bytes);
  return problem("memory that was not allocated to be shared");
}

llvm::Expected<Backend::Address> HostBackend::mapShared(llvm::StringRef name,
                                                        llvm::StringRef handle) {
  auto [file, size] = handle.split(' ');
  size_t bytes = 0;
  const int descriptor =
      size.getAsInteger(10, bytes) ? -1 : ::shm_open(file.str().c_str(), O_RDWR, 0);
  void *memory = descriptor < 0
                     ? MAP_FAILED
                     : ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (descriptor >= 0)
    ::close(descriptor);
  if (memory == MAP_FAILED)
    return problem("{0}: cannot map '{1}', expected memory of a rank on this machine", name,
                   handle);
  sharedMemory.push_back({memory, bytes, ""});
  machine->registerBuffer(memory, bytes, name.str());
  return reinterpret_cast<Address>(memory);
}

llvm::Error HostBackend::write(Address to, const void *from, int64_t bytes) {
  std::memcpy(reinterpret_cast<void *>(to), from, size_t(bytes));
  return llvm::Error::success();
}

llvm::Error HostBackend::read(void *to, Address from, int64_t bytes) {
  std::memcpy(to, reinterpret_cast<const void *>(from), size_t(bytes));
  return llvm::Error::success();
}

llvm::Error HostBackend::fill(Address to, uint32_t word, int64_t bytes) {
  auto *words = reinterpret_cast<uint32_t *>(to);
  std::fill(words, words + bytes / 4, word);
  return llvm::Error::success();
}

std::string HostBackend::withEdgeNames(llvm::StringRef report,
                                       std::span<const PreparedLaunch> launches) const {
  llvm::SmallVector<llvm::StringRef> lines;
  report.split(lines, '\n');
  std::string text;
  for (llvm::StringRef line : lines) {
    if (!text.empty())
      text += '\n';
    unsigned launch = 0, edge = 0;
    llvm::StringRef launchDigits = line.split("launch ").second, rest = line.split("edge ").second;
    const bool known = !launchDigits.consumeInteger(10, launch) && launch < launches.size() &&
                       !rest.consumeInteger(10, edge) &&
                       edge < edges[launches[launch].kernel].size();
    if (known) {
      const Edge &named = edges[launches[launch].kernel][edge];
      text += line.drop_back(rest.size()).str() + " '" + named.name + "'" + rest.str();
    } else {
      text += line;
    }
  }
  return text;
}

llvm::Error HostBackend::run(std::span<const PreparedLaunch> launches, Chaining chaining) {
  std::ranges::fill(faultTable.records, FaultRecord());
  std::vector<host::Launch> list;
  for (const PreparedLaunch &launch : launches)
    list.push_back({kernels[launch.kernel], launch.args, &launch.parameters(),
                    launch.isLooping() ? launch.end() : 0});
  for (size_t i = 0, together = 1; i < list.size(); i += together) {
    // A looping kernel overlaps with nothing.
    together = 1;
    while (chaining == Chaining::Programmatic && i + together < list.size() &&
           !launches[i].isLooping() && !launches[i + together].isLooping())
      ++together;
    auto report = machine->run(llvm::ArrayRef(list).slice(i, together));
    logText += machine->log();
    if (!report)
      return problem(
          "{0}", withEdgeNames(llvm::toString(report.takeError()), launches.subspan(i, together)));
    lastReport = *report;
  }
  return llvm::Error::success();
}

llvm::Error HostBackend::runApart(std::span<const std::vector<PreparedLaunch>> ofRanks,
                                  Chaining chaining) {
  std::ranges::fill(faultTable.records, FaultRecord());
  const size_t count = ofRanks.front().size();
  const size_t together = chaining == Chaining::Programmatic ? count : 1;
  for (size_t first = 0; first < count; first += together) {
    std::vector<host::Launch> list;
    for (const std::vector<PreparedLaunch> &own : ofRanks)
      for (const PreparedLaunch &launch : std::span(own).subspan(first, together))
        list.push_back({kernels[launch.kernel], launch.args, &launch.parameters()});
    auto report = machine->run(list, int(ofRanks.size()));
    if (!report)
      return problem("{0}", withEdgeNames(llvm::toString(report.takeError()),
                                          std::span(ofRanks.front()).subspan(first, together)));
    lastReport = *report;
  }
  return llvm::Error::success();
}

} // namespace megalith::runtime
