//===- kernel_cache.h - Compiled kernels, kept by content --------*- C++ -*-===//
//
// Compiling a kernel takes seconds and gives the same result for the same input: results are kept
// in a folder a kernel that a person can open, with the source, the log and what came out.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_RUNTIME_KERNEL_CACHE_H
#define MEGALITH_RUNTIME_KERNEL_CACHE_H

#include "runtime/nvrtc.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <optional>
#include <string>

namespace megalith::runtime {

/// $MEGALITH_CACHE, else megalith/ in $XDG_CACHE_HOME or ~/.cache, else in the system's temporary
/// folder. It may not exist yet.
std::string defaultCacheFolder();

/// The folder <cache>/<kind>/<stem of name>-<hash of key>, created. `cache` empty:
/// defaultCacheFolder().
llvm::Expected<std::string> cacheEntry(llvm::StringRef cache, llvm::StringRef kind,
                                       llvm::StringRef name, llvm::StringRef key);

/// What tells bytes from damaged ones: 32 hex digits.
std::string digestOf(llvm::StringRef bytes);

/// Writes a file through a temporary one, so that it is complete or absent.
llvm::Error writeWhole(llvm::StringRef file, llvm::StringRef text);

/// A file's text, or nothing if it cannot be read.
std::optional<std::string> readWhole(const std::string &file);

/// Nvrtc::compile, or what it gave before for the same source, headers, target, options and NVRTC.
/// Entries that are damaged, and a cache that cannot be written, cost time only.
llvm::Expected<Compiled> compileCached(const Nvrtc &nvrtc, llvm::StringRef source,
                                       llvm::StringRef name,
                                       const std::map<llvm::StringRef, llvm::StringRef> &headers,
                                       llvm::StringRef target, const NvrtcOptions &options = {},
                                       llvm::StringRef cache = "");

} // namespace megalith::runtime

#endif // MEGALITH_RUNTIME_KERNEL_CACHE_H
