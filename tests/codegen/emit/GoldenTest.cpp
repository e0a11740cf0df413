//===- GoldenTest.cpp - Emitted sources are as reviewed -------------------===//

#include "tests/codegen/emit/Kernel.h"

#include "llvm/Support/MemoryBuffer.h"

using megalith::test::Kernels;

TEST_CASE("the toy kernel's source equals its golden") {
  auto golden = llvm::MemoryBuffer::getFile("tests/golden/source/m0.cu");
  REQUIRE(golden);
  INFO("If the change is meant: tests/golden/update.sh");
  CHECK(Kernels().emit() == (*golden)->getBuffer().str());
}
