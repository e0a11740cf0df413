#include "runtime/host/load.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"

#include <cstdlib>
#include <dlfcn.h>

namespace megalith::host {

static llvm::Error problem(const llvm::Twine &text) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), text);
}

llvm::Expected<KernelLibrary> KernelLibrary::compile(llvm::StringRef source, llvm::StringRef root,
                                                     llvm::StringRef output, int optimize) {
  const char *named = getenv("CXX");
  std::string compiler = named && *named ? named : "g++";
  auto found = llvm::sys::findProgramByName(compiler);
  if (!found)
    return problem("host platform: C++ compiler '" + compiler +
                   "' not found; install g++ or set CXX");
  llvm::SmallString<128> log;
  if (std::error_code e = llvm::sys::fs::createTemporaryFile("megalith-host", "log", log))
    return problem("host platform: cannot write a temporary file: " + e.message());
  std::string include = ("-I" + root).str(), level = "-O" + std::to_string(optimize);
  llvm::StringRef arguments[] = {*found,
                                 "-std=c++20",
                                 level,
                                 "-w",
                                 "-ffp-contract=off",
                                 "-fno-gnu-unique",
                                 "-fvisibility=hidden",
                                 "-DMEGALITH_HOST",
                                 "-shared",
                                 "-fPIC",
                                 include,
                                 "-o",
                                 output,
                                 "-x",
                                 "c++",
                                 source};
  std::optional<llvm::StringRef> redirects[] = {llvm::StringRef(""), log.str(), log.str()};
  int rc = llvm::sys::ExecuteAndWait(*found, arguments, std::nullopt, redirects);
  auto text = llvm::MemoryBuffer::getFile(log);
  llvm::sys::fs::remove(log);
  if (rc != 0)
    return problem("host platform: " + compiler + " cannot compile '" + source + "' (exit " +
                   llvm::Twine(rc) + "):\n" +
                   (text ? (*text)->getBuffer().take_front(4000) : llvm::StringRef()));
  return open(output);
}

llvm::Expected<KernelLibrary> KernelLibrary::open(llvm::StringRef path) {
  // dlopen searches elsewhere where the name has no slash.
  llvm::SmallString<128> absolute(path);
  if (std::error_code e = llvm::sys::fs::make_absolute(absolute))
    return problem("host platform: no absolute path of '" + path + "': " + e.message());
  void *handle = dlopen(absolute.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    return problem(llvm::Twine("host platform: cannot load kernels: ") + dlerror());
  return KernelLibrary(handle, absolute.str().str());
}

llvm::Expected<const KernelRecord *> KernelLibrary::kernel(llvm::StringRef name) const {
  void *record = dlsym(handle, ("megalith_kernel_" + name).str().c_str());
  if (!record)
    return problem("host platform: '" + path + "' defines no kernel '" + name +
                   "' (MEGALITH_KERNEL exports megalith_kernel_" + name + ")");
  return static_cast<const KernelRecord *>(record);
}

KernelLibrary::~KernelLibrary() {
  if (handle)
    dlclose(handle);
}

} // namespace megalith::host
