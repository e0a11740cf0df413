//===- kernel_cache.cpp - Compiled kernels, kept by content ---------------===//

#include "runtime/kernel_cache.h"

#include "runtime/error.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/SHA256.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Support/xxhash.h"

#include <cstdlib>

namespace megalith::runtime {

namespace {

namespace fs = llvm::sys::fs;
namespace path = llvm::sys::path;

std::string environment(const char *name) {
  const char *value = std::getenv(name);
  return value ? value : "";
}

} // namespace

std::optional<std::string> readWhole(const std::string &file) {
  auto text = llvm::MemoryBuffer::getFile(file);
  if (!text)
    return std::nullopt;
  return (*text)->getBuffer().str();
}

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

llvm::Expected<std::string> cacheEntry(llvm::StringRef cache, llvm::StringRef kind,
                                       llvm::StringRef name, llvm::StringRef key) {
  const llvm::XXH128_hash_t hash = llvm::xxh3_128bits(llvm::arrayRefFromStringRef(key));
  const std::string folder = (cache.empty() ? defaultCacheFolder() : cache.str()) + "/" +
                             kind.str() + "/" + path::stem(name).str() + "-" +
                             llvm::utohexstr(hash.high64, true, 16) +
                             llvm::utohexstr(hash.low64, true, 16);
  if (auto error = fs::create_directories(folder))
    return problem("cannot create the cache folder '{0}': {1}; set MEGALITH_CACHE to a folder that "
                   "can be written",
                   folder, error.message());
  return folder;
}

std::string digestOf(llvm::StringRef bytes) {
  const llvm::XXH128_hash_t hash = llvm::xxh3_128bits(llvm::arrayRefFromStringRef(bytes));
  return llvm::utohexstr(hash.high64, true, 16) + llvm::utohexstr(hash.low64, true, 16);
}

llvm::Error writeWhole(llvm::StringRef file, llvm::StringRef text) {
  return llvm::writeToOutput(file, [&](llvm::raw_ostream &os) {
    os << text;
    return llvm::Error::success();
  });
}

llvm::Expected<Compiled> compileCached(const Nvrtc &nvrtc, llvm::StringRef source,
                                       llvm::StringRef name,
                                       const std::map<llvm::StringRef, llvm::StringRef> &headers,
                                       llvm::StringRef target, const NvrtcOptions &options,
                                       llvm::StringRef cache) {
  std::string key = nvrtc.versionText() + '\0' + target.str() + '\0' + name.str() + '\0' +
                    source.str() + '\0' + (options.ptx ? "p" : "") + (options.lineInfo ? "l" : "");
  for (const std::string &flag : nvrtcFlags(target, options))
    key += '\0' + flag;
  for (const auto &[header, text] : headers)
    key += '\0' + header.str() + '\0' + text.str();
  auto folder = cacheEntry(cache, "cuda", name, key);
  if (!folder) {
    llvm::consumeError(folder.takeError());
    return nvrtc.compile(source, name, headers, target, options);
  }
  const std::string cubinFile = *folder + "/kernel.cubin", logFile = *folder + "/nvrtc.log",
                    ptxFile = *folder + "/kernel.ptx", checkFile = *folder + "/check.sha256";
  auto checkOf = [&](llvm::StringRef cubin, llvm::StringRef ptx) {
    llvm::SHA256 hash;
    for (llvm::StringRef part : {llvm::StringRef(key), cubin, ptx}) {
      hash.update(std::to_string(part.size()) + "\n");
      hash.update(part);
    }
    return llvm::toHex(hash.final(), /*LowerCase=*/true) + "\n";
  };
  auto cubin = readWhole(cubinFile);
  auto log = readWhole(logFile);
  auto ptx = options.ptx ? readWhole(ptxFile) : "";
  if (cubin && log && ptx && readWhole(checkFile) == checkOf(*cubin, *ptx)) {
    Compiled found = {.cubin = *cubin, .ptx = *ptx, .log = *log};
    // A damaged entry, or that of another key with the same hash, is compiled again.
    if (auto unreadable = readResources(found))
      llvm::consumeError(std::move(unreadable));
    else
      return found;
  }
  auto compiled = nvrtc.compile(source, name, headers, target, options);
  if (!compiled)
    return compiled;
  // The check last: an entry with it is complete.
  llvm::Error error = writeWhole(*folder + "/" + path::filename(name).str(), source);
  if (!error)
    error = writeWhole(logFile, compiled->log);
  if (!error && options.ptx)
    error = writeWhole(ptxFile, compiled->ptx);
  if (!error)
    error = writeWhole(cubinFile, compiled->cubin);
  if (!error)
    error = writeWhole(checkFile, checkOf(compiled->cubin, compiled->ptx));
  llvm::consumeError(std::move(error));
  return compiled;
}

} // namespace megalith::runtime
