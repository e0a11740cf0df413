//===- Backends.cpp - Backends by name ------------------------------------===//

#include "tools/check/Backends.h"

#include "codegen/headers.h"
#include "runtime/cuda_backend.h"
#include "runtime/error.h"
#include "runtime/host_backend.h"
#include "runtime/kernel_cache.h"

namespace megalith::check {

llvm::Expected<std::unique_ptr<runtime::Backend>> openBackend(llvm::StringRef name, uint64_t seed,
                                                              bool log, int ordinal) {
  if (name == "cuda") {
    auto backend = runtime::CudaBackend::create(ordinal);
    if (!backend)
      return backend.takeError();
    return std::move(*backend);
  }
  if (name != "host")
    return runtime::problem("backend: expected one of host, cuda but got '{0}'", name);
  auto headers = runtime::cacheEntry("", "headers", "device", deviceHeadersDigest());
  if (!headers)
    return headers.takeError();
  if (llvm::Error error = writeDeviceHeaders(*headers))
    return error;
  return std::make_unique<runtime::HostBackend>(runtime::HostBackendOptions{
      .compile = {.includeFolder = *headers}, .seed = seed, .log = log});
}

} // namespace megalith::check
