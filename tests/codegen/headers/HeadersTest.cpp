//===- HeadersTest.cpp - Embedded device headers --------------------------===//

#include "codegen/headers.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"

#include <catch2/catch.hpp>

using namespace megalith;

TEST_CASE("what a device header includes is embedded under that name") {
  REQUIRE(deviceHeaders().count("runtime/abi.h"));
  REQUIRE(deviceHeaders().count("codegen/device/platform.cuh"));
  for (const auto &[name, text] : deviceHeaders()) {
    llvm::StringRef rest = text;
    while (rest.contains("#include \"")) {
      rest = rest.split("#include \"").second;
      const llvm::StringRef included = rest.split('"').first;
      CAPTURE(name.str(), included.str());
      CHECK(deviceHeaders().count(included));
    }
  }
  CHECK(deviceHeadersDigest().size() == 16);
}

TEST_CASE("the include folder holds every header") {
  llvm::SmallString<128> folder;
  REQUIRE(!llvm::sys::fs::createUniqueDirectory("headers", folder));
  for (int times = 0; times < 2; ++times) { // the second finds all in place
    REQUIRE(!writeDeviceHeaders(folder));
    for (const auto &[name, text] : deviceHeaders()) {
      auto file = llvm::MemoryBuffer::getFile(folder + "/" + name);
      REQUIRE(bool(file));
      CHECK((*file)->getBuffer() == text);
    }
  }
  llvm::sys::fs::remove_directories(folder);
  CHECK_THAT(llvm::toString(writeDeviceHeaders("/proc/nowhere")),
             Catch::Matchers::Contains("/proc/nowhere"));
}
