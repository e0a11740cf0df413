//===- nvrtc.h - Compiling kernels at run time -------------------*- C++ -*-===//
//
// NVRTC compiles CUDA C++ to a cubin without a GPU and without a CUDA toolkit. It is loaded by
// dlopen, so nothing of CUDA is needed to build this.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_RUNTIME_NVRTC_H
#define MEGALITH_RUNTIME_NVRTC_H

#include "runtime/plan.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace megalith::runtime {

struct NvrtcOptions {
  bool ptx = false;               ///< also return the PTX (for the lint)
  bool lineInfo = false;          ///< for profilers
  std::vector<std::string> extra; ///< handed to NVRTC as they are, e.g. "-DNAME=1"
};

/// A compiled source file.
struct Compiled {
  std::string cubin;
  std::string ptx; ///< empty unless asked for
  std::string log; ///< warnings and ptxas' report without its times, so the same for the same input
  /// By kernel name: registers, spills and so on.
  std::map<std::string, KernelResources> resources;
};

/// A loaded NVRTC library. Compiling is safe from several threads.
class Nvrtc {
public:
  /// Loads the library from the first place that has it: $MEGALITH_NVRTC (a file); lib64/ and lib/
  /// of $MEGALITH_CUDA_HOME, $CUDA_HOME, $CUDA_PATH, /usr/local/cuda; site-packages/nvidia/cu13/lib
  /// of $VIRTUAL_ENV and of the environment that the set-up script makes under the user's cache
  /// folder; the loader's own path. The error lists them all and how to get NVRTC.
  static llvm::Expected<Nvrtc> load();

  /// The file it was loaded from, and its version as 13000 (13.0).
  llvm::StringRef path() const;
  int version() const;
  /// "13.0"
  std::string versionText() const;

  /// Compiles `source` for `target` ("sm_90a"). `name` is its name in messages; `headers` maps
  /// include names to texts. Errors carry NVRTC's first lines.
  llvm::Expected<Compiled> compile(llvm::StringRef source, llvm::StringRef name,
                                   const std::map<llvm::StringRef, llvm::StringRef> &headers,
                                   llvm::StringRef target, const NvrtcOptions &options = {}) const;

  /// The PTX alone, without ptxas: of the same source the same PTX as `compile` works on.
  llvm::Expected<std::string> ptx(llvm::StringRef source, llvm::StringRef name,
                                  const std::map<llvm::StringRef, llvm::StringRef> &headers,
                                  llvm::StringRef target) const;

private:
  llvm::Expected<Compiled> run(llvm::StringRef source, llvm::StringRef name,
                               const std::map<llvm::StringRef, llvm::StringRef> &headers,
                               llvm::StringRef target, const std::vector<std::string> &flags,
                               bool wantsPtx) const;
  struct Library;
  explicit Nvrtc(std::shared_ptr<const Library> library) : library(std::move(library)) {}
  std::shared_ptr<const Library> library;
};

/// The command line that a target and options come to.
std::vector<std::string> nvrtcFlags(llvm::StringRef target, const NvrtcOptions &options);

/// Fills `compiled.resources` from its cubin and log.
llvm::Error readResources(Compiled &compiled);

/// The places that Nvrtc::load looks at, in order, for messages and the set-up script's check.
std::vector<std::string> nvrtcSearchPath();

/// The first `count` non-empty lines of a compiler's log, indented, for an error message.
std::string firstLines(llvm::StringRef log, unsigned count);

} // namespace megalith::runtime

#endif // MEGALITH_RUNTIME_NVRTC_H
