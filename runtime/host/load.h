// Compiles emitted sources for the host platform and loads their kernels.
#pragma once

#include "runtime/host/api.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <string>
#include <utility>

namespace megalith::host {

/// A shared object of kernels; unloads it when destroyed, so it must outlive every run of them.
class KernelLibrary {
public:
  /// Compiles one source with the host's C++ compiler ($CXX, else g++) into the shared object
  /// `output` and opens it, with -O`optimize`. `root` is the folder that holds codegen/device and
  /// runtime. The error carries the compiler's first lines.
  static llvm::Expected<KernelLibrary> compile(llvm::StringRef source, llvm::StringRef root,
                                               llvm::StringRef output, int optimize = 2);
  static llvm::Expected<KernelLibrary> open(llvm::StringRef path);

  /// The kernel that MEGALITH_KERNEL(name) defined.
  llvm::Expected<const KernelRecord *> kernel(llvm::StringRef name) const;

  KernelLibrary(KernelLibrary &&other)
      : handle(std::exchange(other.handle, nullptr)), path(std::move(other.path)) {}
  KernelLibrary &operator=(KernelLibrary &&other) {
    std::swap(handle, other.handle);
    std::swap(path, other.path);
    return *this;
  }
  ~KernelLibrary();

private:
  KernelLibrary(void *handle, std::string path) : handle(handle), path(std::move(path)) {}
  void *handle;
  std::string path;
};

} // namespace megalith::host
