//===- MeetingTest.cpp - Calls that may say `meets`, and the device headers ===//

#include "passes/verify/Calls.h"

#include "codegen/headers.h"

#include <catch2/catch.hpp>

using namespace megalith;

/// "{…" of the device function, up to the line that ends it; or "".
static llvm::StringRef bodyOf(llvm::StringRef function) {
  for (const auto &[name, text] : deviceHeaders())
    if (const size_t at = text.find((" " + function + "(const Cta &cta").str());
        at != llvm::StringRef::npos)
      return text.substr(at).split("{\n").second.split("\n}\n").first;
  return "";
}

TEST_CASE("device functions in which warps meet do so before they write") {
  for (const verify::MeetingFunction &function : verify::meetingFunctions()) {
    CAPTURE(function.name.str());
    const llvm::StringRef body = bodyOf(function.name);
    REQUIRE(body.contains("  consumer_sync();"));
    const llvm::StringRef before = body.split("  consumer_sync();").first;
    CHECK(!before.contains("st_shared"));
    // Those that always meet do not return, or choose, before.
    CHECK(before.contains("return") == function.round.has_value());
    CHECK(before.ends_with("if (round > 0)\n  ") == function.round.has_value());
  }
}
