//===- headers.h - The device headers inside the program ---------*- C++ -*-===//
//
// Emitted kernels include codegen/device/*.cuh and runtime/abi.h by these names. The program
// carries their text: NVRTC gets it by include name, and g++ (host platform) or nvcc gets a folder
// of it.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_CODEGEN_HEADERS_H
#define MEGALITH_CODEGEN_HEADERS_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <map>
#include <string>

namespace megalith {

/// Include name ("codegen/device/ring.cuh") -> text, of every device header and the ABI.
const std::map<llvm::StringRef, llvm::StringRef> &deviceHeaders();

/// 16 hex digits that change with any header's name or text; for banners and cache keys.
std::string deviceHeadersDigest();

/// Writes every header under `folder` by its include name, so that `-I folder` serves an emitted
/// source. Files that are there with the same text are left alone.
llvm::Error writeDeviceHeaders(llvm::StringRef folder);

} // namespace megalith

#endif // MEGALITH_CODEGEN_HEADERS_H
