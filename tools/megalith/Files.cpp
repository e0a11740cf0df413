//===- Files.cpp - reading inputs, writing outputs whole or not at all ------===//

#include "tools/megalith/Files.h"
#include "tools/megalith/Failure.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;

namespace megalith::cli {

Expected<std::string> readText(StringRef file, StringRef expected) {
  if (sys::fs::is_directory(file))
    return failure(Exit::Input, "{0}: expected {1} but got a folder; name the file", file,
                   expected);
  sys::fs::file_status status;
  // Some never end: /dev/zero. Pipes do, and are welcome.
  if (!sys::fs::status(file, status) && status.type() == sys::fs::file_type::character_file)
    return failure(Exit::Input, "{0}: expected {1} but got a device; name a file", file, expected);
  auto buffer = MemoryBuffer::getFile(file);
  if (!buffer)
    return failure(Exit::Input, "{0}: expected {1} but cannot read it: {2}; check the path", file,
                   expected, buffer.getError().message());
  return (*buffer)->getBuffer().str();
}

bool isCheckpoint(StringRef given) {
  SmallString<128> config(given), plan(given);
  sys::path::append(config, "config.json");
  sys::path::append(plan, "plan.json");
  return sys::fs::is_directory(given) && sys::fs::exists(config) && !sys::fs::exists(plan);
}

Expected<ConfigText> readConfig(StringRef given, StringRef expected) {
  SmallString<128> file(given);
  if (isCheckpoint(given))
    sys::path::append(file, "config.json");
  Expected<std::string> text = readText(file, expected);
  if (!text)
    return text.takeError();
  return ConfigText{std::move(*text), file.str().str()};
}

Error writeText(StringRef file, StringRef text) {
  if (file.empty()) {
    outs() << text;
    outs().flush();
    if (std::error_code code = outs().error()) {
      outs().clear_error(); // else the stream's destructor aborts
      return failure(Exit::Input, "cannot write to standard output: {0}", code.message());
    }
    return Error::success();
  }
  auto refuse = [&](std::error_code code) {
    return failure(Exit::Input, "{0}: cannot write it: {1}; choose another place", file,
                   code.message());
  };
  // Through links, so that they stay; devices and pipes are written as they are, not replaced.
  SmallString<128> target(file);
  if (sys::fs::exists(file))
    if (auto code = sys::fs::real_path(file, target))
      return refuse(code);
  sys::fs::file_status status;
  if (auto code = sys::fs::status(target, status);
      code && code != std::errc::no_such_file_or_directory)
    return refuse(code);
  if (status.type() == sys::fs::file_type::directory_file)
    return refuse(std::make_error_code(std::errc::is_a_directory));
  std::error_code code;
  auto writeAll = [&](raw_fd_ostream &os) {
    os << text;
    os.close();
    if (os.error())
      code = os.error();
    os.clear_error(); // else the stream's destructor aborts
  };
  if (sys::fs::exists(status) && status.type() != sys::fs::file_type::regular_file) {
    raw_fd_ostream os(target, code);
    if (!code)
      writeAll(os);
    return code ? refuse(code) : Error::success();
  }
  int descriptor = -1;
  SmallString<128> temporary;
  if ((code = sys::fs::createUniqueFile(target + ".%%%%%%.part", descriptor, temporary)))
    return refuse(code);
  {
    raw_fd_ostream os(descriptor, /*shouldClose=*/true);
    writeAll(os);
  }
  if (!code)
    code = sys::fs::rename(temporary, target);
  if (code) {
    sys::fs::remove(temporary);
    return refuse(code);
  }
  return Error::success();
}

Error TemporaryFolder::create() {
  SmallString<128> made;
  if (auto code = sys::fs::createUniqueDirectory("megalith", made))
    return failure(Exit::Run,
                   "cannot make a temporary folder: {0}; set TMPDIR to one that can be written",
                   code.message());
  folder = made.str().str();
  return Error::success();
}

TemporaryFolder::~TemporaryFolder() {
  if (!folder.empty())
    sys::fs::remove_directories(folder);
}

} // namespace megalith::cli
