//===- headers.cpp - Digest and folder of the device headers --------------===//

#include "codegen/headers.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Support/xxhash.h"

namespace megalith {

std::string deviceHeadersDigest() {
  std::string all;
  for (const auto &[name, text] : deviceHeaders())
    all += (name + llvm::Twine('\0') + text + llvm::Twine('\0')).str();
  return llvm::utohexstr(llvm::xxh3_64bits(all), /*LowerCase=*/true, /*Width=*/16);
}

llvm::Error writeDeviceHeaders(llvm::StringRef folder) {
  for (const auto &[name, text] : deviceHeaders()) {
    llvm::SmallString<256> file(folder);
    llvm::sys::path::append(file, name);
    auto there = llvm::MemoryBuffer::getFile(file);
    if (there && (*there)->getBuffer() == text)
      continue;
    if (auto error = llvm::sys::fs::create_directories(llvm::sys::path::parent_path(file)))
      return llvm::createStringError(error, "cannot create the folder of " + llvm::Twine(file) +
                                                ": " + error.message());
    // Through a temporary file: another process may be compiling from the same folder.
    auto error = llvm::writeToOutput(file, [&text = text](llvm::raw_ostream &os) {
      os << text;
      return llvm::Error::success();
    });
    if (error)
      return error;
  }
  return llvm::Error::success();
}

} // namespace megalith
