//===- host_compile.cpp - Cached host builds of emitted kernels -----------===//

#include "runtime/host_compile.h"

#include "runtime/error.h"
#include "runtime/kernel_cache.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/xxhash.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <vector>

namespace megalith::runtime {

namespace {

namespace fs = llvm::sys::fs;
namespace path = llvm::sys::path;

/// What the compiler says of itself; "" where there is none, which the compilation then reports.
std::string compilerVersion() {
  const char *named = std::getenv("CXX");
  auto program = llvm::sys::findProgramByName(named && *named ? named : "g++");
  llvm::SmallString<128> log;
  if (!program || fs::createTemporaryFile("megalith", "log", log))
    return "";
  const std::optional<llvm::StringRef> redirects[] = {llvm::StringRef(""), log.str(),
                                                      llvm::StringRef("")};
  llvm::sys::ExecuteAndWait(*program, {*program, "--version"}, std::nullopt, redirects);
  auto text = llvm::MemoryBuffer::getFile(log);
  fs::remove(log);
  return text ? (*text)->getBuffer().str() : "";
}

/// Every header below `folder` with its name and text, sorted.
llvm::Expected<std::string> headerTexts(llvm::StringRef folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; it != end && !error;
       it.increment(error))
    if (it->type() == fs::file_type::regular_file)
      files.push_back(it->path());
  if (error)
    return problem("host platform: cannot read the include folder '{0}': {1}", folder,
                   error.message());
  std::sort(files.begin(), files.end());
  std::string all;
  for (const std::string &file : files)
    if (auto text = llvm::MemoryBuffer::getFile(file))
      all += file.substr(folder.size()) + '\0' + (*text)->getBuffer().str() + '\0';
  return all;
}

/// What tells a file's contents, or nothing where it cannot be read.
std::optional<std::string> digestOfFile(const std::string &file) {
  auto bytes = llvm::MemoryBuffer::getFile(file);
  if (!bytes)
    return std::nullopt;
  return digestOf((*bytes)->getBuffer());
}

} // namespace

llvm::Expected<host::KernelLibrary> compileForHost(llvm::StringRef source, llvm::StringRef name,
                                                   const HostCompileOptions &options) {
  auto headers = headerTexts(options.includeFolder);
  if (!headers)
    return headers.takeError();
  std::string key = compilerVersion() + '\0' + source.str() + '\0' + *headers;
  if (options.optimize != HostCompileOptions().optimize)
    key += "-O" + std::to_string(options.optimize);
  auto folder = cacheEntry(options.cacheFolder, "host", name, key);
  if (!folder)
    return folder.takeError();
  const std::string object = *folder + "/kernel.so";
  // Its digest, written last, tells a whole object from a damaged one, which the loader may take
  // for code; that one is compiled again.
  const std::string digestFile = object + ".digest";
  if (auto digest = digestOfFile(object))
    if (auto kept = llvm::MemoryBuffer::getFile(digestFile);
        kept && (*kept)->getBuffer() == *digest)
      return host::KernelLibrary::open(object);

  // The source stays beside the object, for debuggers and for the compiler's messages. The object
  // gets its name when it is complete: several processes may compile the same.
  const std::string kept = *folder + "/" + path::filename(name).str();
  if (auto error = writeWhole(kept, source))
    return error;
  llvm::SmallString<256> temporary;
  fs::createUniquePath(*folder + "/%%%%%%%%.so", temporary, /*MakeAbsolute=*/false);
  auto library =
      host::KernelLibrary::compile(kept, options.includeFolder, temporary, options.optimize);
  if (!library) {
    fs::remove(temporary);
    return library.takeError();
  }
  const std::optional<std::string> digest = digestOfFile(temporary.str().str());
  if (auto error = fs::rename(temporary, object))
    return problem("host platform: cannot write '{0}': {1}", object, error.message());
  if (digest)
    if (auto error = writeWhole(digestFile, *digest))
      return error;
  return library;
}

llvm::Expected<const host::KernelRecord *> hostKernel(const host::KernelLibrary &library,
                                                      llvm::StringRef kernel) {
  auto record = library.kernel(kernel);
  if (record && (*record)->abi != kAbiVersion)
    return problem("host platform: kernel '{0}' has ABI version {1}, expected {2}: the include "
                   "folder is of another version",
                   kernel, (*record)->abi, kAbiVersion);
  return record;
}

} // namespace megalith::runtime
