//===- host_compile.h - Cached host builds of emitted kernels ----*- C++ -*-===//
//
// The host platform runs emitted sources compiled by g++ (runtime/host/load.h). Compiling takes
// seconds, so objects are kept by content.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_RUNTIME_HOST_COMPILE_H
#define MEGALITH_RUNTIME_HOST_COMPILE_H

#include "runtime/host/load.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <string>

namespace megalith::runtime {

struct HostCompileOptions {
  /// Folder with the device headers by include name (writeDeviceHeaders).
  std::string includeFolder;
  /// Where compiled objects are kept; empty: defaultCacheFolder() (kernel_cache.h).
  std::string cacheFolder;
  /// -O of the compiler: less runs slower and compiles sooner.
  int optimize = 2;
};

/// Compiles `source` (emitted CUDA C++) for the host platform, or finds it in the cache: the key is
/// the source, every header in includeFolder, the compiler's version and its options. `name` is the
/// source's file name, for messages; errors carry the compiler's first lines.
llvm::Expected<host::KernelLibrary> compileForHost(llvm::StringRef source, llvm::StringRef name,
                                                   const HostCompileOptions &options);

/// A kernel of a library, made for this version of the ABI.
llvm::Expected<const host::KernelRecord *> hostKernel(const host::KernelLibrary &library,
                                                      llvm::StringRef kernel);

} // namespace megalith::runtime

#endif // MEGALITH_RUNTIME_HOST_COMPILE_H
