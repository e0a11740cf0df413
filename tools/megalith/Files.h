//===- Files.h - reading inputs, writing outputs whole or not at all --------===//
#ifndef MEGALITH_TOOLS_MEGALITH_FILES_H
#define MEGALITH_TOOLS_MEGALITH_FILES_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <string>

namespace megalith::cli {

/// The contents of `file`. `expected` is for messages: "a Hugging Face config.json".
llvm::Expected<std::string> readText(llvm::StringRef file, llvm::StringRef expected);

/// A model's config and the file it comes from.
struct ConfigText {
  std::string text, file;
};

/// The config `given`, a file or a checkpoint's folder with a config.json in it.
llvm::Expected<ConfigText> readConfig(llvm::StringRef given, llvm::StringRef expected);

/// Whether it is a folder with a config.json in it and no plan.
bool isCheckpoint(llvm::StringRef given);

/// Writes `text` to `file` through a temporary file beside it; "" is standard output.
llvm::Error writeText(llvm::StringRef file, llvm::StringRef text);

/// A folder that is gone at the end.
class TemporaryFolder {
public:
  TemporaryFolder() = default;
  TemporaryFolder(const TemporaryFolder &) = delete;
  ~TemporaryFolder();

  /// Makes it, once.
  llvm::Error create();
  llvm::StringRef path() const { return folder; }

private:
  std::string folder;
};

} // namespace megalith::cli

#endif // MEGALITH_TOOLS_MEGALITH_FILES_H
