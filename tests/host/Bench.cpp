//===- Bench.cpp - A small model on the host platform ---------------------===//

#include "tests/host/Bench.h"

#include "codegen/headers.h"
#include "runtime/kernel_cache.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"

#include <catch2/catch.hpp>

namespace megalith::test {

/// The value, or the end of the test.
template <class T> static T must(llvm::Expected<T> value) {
  if (!value)
    FAIL(llvm::toString(value.takeError()));
  return std::move(*value);
}

std::string readSource(const std::string &path) {
  auto file = llvm::MemoryBuffer::getFile(path);
  if (!file)
    FAIL(path << ": " << file.getError().message());
  return (*file)->getBuffer().str();
}

std::string deviceHeaderFolder() {
  const std::string folder =
      must(runtime::cacheEntry("", "headers", "device", deviceHeadersDigest()));
  if (llvm::Error error = writeDeviceHeaders(folder))
    FAIL(llvm::toString(std::move(error)));
  return folder;
}

Bench::Bench(const std::string &config, int64_t rows, int64_t sms,
             const check::SessionOptions &options, runtime::LaunchMode launch, int64_t tp,
             const models::Quantization &quantization, const RankScheme &scheme) {
  llvm::SmallString<128> temporary;
  REQUIRE(!llvm::sys::fs::createUniqueDirectory("megalith-host", temporary));
  folder = temporary.str().str();
  subject = must(check::compileSubject({.config = readSource("models/configs/" + config),
                                        .name = config,
                                        .rows = rows,
                                        .sms = sms,
                                        .launch = launch,
                                        .tp = tp,
                                        .tpExperts = scheme.experts,
                                        .tpOutput = scheme.output,
                                        .tpSums = scheme.sums,
                                        .quantization = quantization,
                                        .outDir = folder}));
  backend = std::make_unique<runtime::HostBackend>(
      runtime::HostBackendOptions{.compile = {.includeFolder = deviceHeaderFolder()}});
  session = must(
      check::Session::create(*subject->graph, subject->plan, subject->folder, *backend, options));
}

Bench::~Bench() {
  llvm::sys::fs::remove_directories(folder);
}

check::Report Bench::compare(const check::Workload &workload, uint64_t seed,
                             check::Outcome *outcome) {
  backend->reseed(seed);
  return must(session->compare(workload, outcome));
}

check::Outcome Bench::run(const check::Workload &workload, uint64_t seed, uint64_t launchBase) {
  backend->reseed(seed);
  return must(session->run(workload, launchBase));
}

} // namespace megalith::test
