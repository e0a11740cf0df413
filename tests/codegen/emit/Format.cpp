//===- Format.cpp - clang-format's opinion of a source --------------------===//

#include "tests/codegen/emit/Format.h"

#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"

#include <catch2/catch.hpp>

namespace megalith::test {

std::optional<std::string> formatFindings(const std::string &source) {
  auto tool = llvm::sys::findProgramByName("clang-format");
  if (!tool) {
    WARN("skipped: clang-format is not installed");
    return std::nullopt;
  }
  llvm::SmallString<128> folder;
  REQUIRE(!llvm::sys::fs::createUniqueDirectory("format", folder));
  auto cleanUp = llvm::scope_exit([&] { llvm::sys::fs::remove_directories(folder); });
  const std::string file = (folder + "/kernel.cu").str(), log = (folder + "/log").str();
  {
    std::error_code error;
    llvm::raw_fd_ostream(file, error) << source;
    REQUIRE(!error);
  }
  const llvm::StringRef arguments[] = {*tool, "--style=file:.clang-format", "--dry-run", "-Werror",
                                       file};
  const std::optional<llvm::StringRef> redirects[] = {std::nullopt, std::nullopt,
                                                      llvm::StringRef(log)};
  llvm::sys::ExecuteAndWait(*tool, arguments, std::nullopt, redirects);
  auto text = llvm::MemoryBuffer::getFile(log);
  REQUIRE(text);
  return (*text)->getBuffer().str();
}

} // namespace megalith::test
