//===- host_compile.cpp - Cached host builds of emitted kernels -----------===//

#include "runtime/host_compile.h"

#include "runtime/error.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Support/xxhash.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace megalith::runtime {

namespace {

namespace fs = llvm::sys::fs;
namespace path = llvm::sys::path;

std::string environment(const char *name) {
  const char *value = std::getenv(name);
  return value ? value : "";
}

/// What the compiler says of itself; "" where there is none, which the compilation then reports.
std::string compilerVersion() {
  std::string compiler = environment("CXX");
  auto program = llvm::sys::findProgramByName(compiler.empty() ? "g++" : compiler);
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

} // namespace

std::string defaultCacheFolder() {
  if (std::string folder = environment("MEGALITH_CACHE"); !folder.empty())
    return folder;
  if (std::string folder = environment("XDG_CACHE_HOME"); !folder.empty())
    return folder + "/megalith";
  if (std::string home = environment("HOME"); !home.empty() && fs::can_write(home))
    return home + "/.cache/megalith";
  llvm::SmallString<128> temporary;
  path::system_temp_directory(/*ErasedOnReboot=*/true, temporary);
  return (temporary + "/megalith-cache").str();
}

llvm::Expected<host::KernelLibrary> compileForHost(llvm::StringRef source, llvm::StringRef name,
                                                   const HostCompileOptions &options) {
  auto headers = headerTexts(options.includeFolder);
  if (!headers)
    return headers.takeError();
  const std::string key = compilerVersion() + '\0' + source.str() + '\0' + *headers;
  const llvm::XXH128_hash_t hash = llvm::xxh3_128bits(llvm::arrayRefFromStringRef(key));
  const std::string folder =
      (options.cacheFolder.empty() ? defaultCacheFolder() : options.cacheFolder) + "/host/" +
      path::stem(name).str() + "-" + llvm::utohexstr(hash.high64, true, 16) +
      llvm::utohexstr(hash.low64, true, 16);
  const std::string object = folder + "/kernel.so";
  if (fs::exists(object))
    return host::KernelLibrary::open(object);

  if (auto error = fs::create_directories(folder))
    return problem(
        "host platform: cannot create the cache folder '{0}': {1}; set MEGALITH_CACHE to "
        "a folder that can be written",
        folder, error.message());
  // The source stays beside the object, for debuggers and for the compiler's messages. The object
  // gets its name when it is complete: several processes may compile the same.
  const std::string kept = folder + "/" + path::filename(name).str();
  auto unwritten = llvm::writeToOutput(kept, [&](llvm::raw_ostream &os) {
    os << source;
    return llvm::Error::success();
  });
  if (unwritten)
    return unwritten;
  llvm::SmallString<256> temporary;
  fs::createUniquePath(folder + "/%%%%%%%%.so", temporary, /*MakeAbsolute=*/false);
  auto library = host::KernelLibrary::compile(kept, options.includeFolder, temporary);
  if (!library) {
    fs::remove(temporary);
    return library.takeError();
  }
  if (auto error = fs::rename(temporary, object))
    return problem("host platform: cannot write '{0}': {1}", object, error.message());
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
