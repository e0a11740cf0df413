//===- CompileTest.cpp - Artifacts appear as a whole or not at all --------===//

#include "codegen/Compile.h"
#include "runtime/nvrtc.h"
#include "tests/codegen/emit/Kernel.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

#include <set>

using namespace megalith;
using namespace megalith::task;
using Catch::Matchers::Contains;
using megalith::test::Kernels;

namespace {

/// A folder of its own, gone at the end.
class Folder {
public:
  Folder() { REQUIRE(!llvm::sys::fs::createUniqueDirectory("compile", path)); }
  ~Folder() { llvm::sys::fs::remove_directories(path); }

  std::string operator/(const std::string &name) const { return path.str().str() + "/" + name; }

  /// Everything in it, files and folders, by its path from here.
  std::set<std::string> entries() const {
    std::set<std::string> names;
    std::error_code error;
    for (llvm::sys::fs::recursive_directory_iterator it(path, error), end; it != end && !error;
         it.increment(error))
      names.insert(it->path().substr(path.size() + 1));
    return names;
  }
  std::string text(const std::string &name) const {
    auto file = llvm::MemoryBuffer::getFile(*this / name);
    return file ? (*file)->getBuffer().str() : "";
  }

private:
  llvm::SmallString<128> path;
};

ModelFacts toyFacts() {
  return {.model = "toy", .layers = 1, .tensors = {{"w1", {256, 512}}, {"w2", {128, 256}}}};
}

CompileOptions options(const Folder &folder) {
  CompileOptions options;
  options.outDir = folder / "out";
  options.cubins = false;
  return options;
}

} // namespace

TEST_CASE("sources, plan and IR are written under target and bucket") {
  Kernels kernels;
  Folder folder;
  CompileOptions how = options(folder);
  how.emit.origin = "toy.json";
  how.snapshots = {{"moe-cut-launches", "first"}, {"task-lower-to-roles", "second"}};
  auto artifact = compileKernels(*kernels.module, toyFacts(), how);
  if (!artifact)
    FAIL(llvm::toString(artifact.takeError()));
  CHECK(artifact->folder == folder / "out/sm_90a/rows1");
  CHECK(folder.entries() ==
        std::set<std::string>{"out", "out/sm_90a", "out/sm_90a/rows1", "out/sm_90a/rows1/ir",
                              "out/sm_90a/rows1/ir/00-moe-cut-launches.mlir",
                              "out/sm_90a/rows1/ir/01-task-lower-to-roles.mlir",
                              "out/sm_90a/rows1/kernels", "out/sm_90a/rows1/kernels/m0.cu",
                              "out/sm_90a/rows1/plan.json"});
  CHECK(folder.text("out/sm_90a/rows1/ir/01-task-lower-to-roles.mlir") == "second");
  CHECK_THAT(folder.text("out/sm_90a/rows1/kernels/m0.cu"), Contains("// Origin      toy.json\n"));
  auto plan = runtime::readPlan(folder / "out/sm_90a/rows1/plan.json");
  if (!plan)
    FAIL(llvm::toString(plan.takeError()));
  CHECK(*plan == artifact->plan);
}

TEST_CASE("a second compilation replaces the whole artifact with the same bytes") {
  Kernels kernels;
  Folder folder;
  CompileOptions how = options(folder);
  how.snapshots = {{"old", "old"}};
  REQUIRE(bool(compileKernels(*kernels.module, toyFacts(), how)));
  const std::string plan = folder.text("out/sm_90a/rows1/plan.json");
  const std::string source = folder.text("out/sm_90a/rows1/kernels/m0.cu");
  how.snapshots.clear();
  REQUIRE(bool(compileKernels(*kernels.module, toyFacts(), how)));
  CHECK(folder.text("out/sm_90a/rows1/plan.json") == plan);
  CHECK(folder.text("out/sm_90a/rows1/kernels/m0.cu") == source);
  CHECK(folder.entries().size() == 6);
}

TEST_CASE("an error leaves nothing new and the old artifact as it was") {
  Kernels kernels;
  Folder folder;
  CompileOptions how = options(folder);
  kernels.nth<PollOp>(0).setCallee("poll_rows<linear2::In>");
  auto failed = compileKernels(*kernels.module, toyFacts(), how);
  REQUIRE(!failed);
  CHECK_THAT(llvm::toString(failed.takeError()),
             Contains("kernel 'm0'") && Contains("to name the edge h_words"));
  CHECK(folder.entries().empty());

  // A source that is printed but does not compile is found after files were written.
  if (auto nvrtc = runtime::Nvrtc::load(); !nvrtc) {
    WARN("skipped: " << llvm::toString(nvrtc.takeError()));
    return;
  }
  Kernels broken;
  broken.nth<PollOp>(0).setCallee("poll_rows<h_words, no_such_type>");
  how.cubins = true;
  failed = compileKernels(*broken.module, toyFacts(), how);
  REQUIRE(!failed);
  CHECK_THAT(llvm::toString(failed.takeError()), Contains("no_such_type"));
  CHECK(folder.entries().empty());

  Kernels right;
  how.cubins = false;
  REQUIRE(bool(compileKernels(*right.module, toyFacts(), how)));
  const auto before = folder.entries();
  how.cubins = true;
  failed = compileKernels(*broken.module, toyFacts(), how);
  CHECK(!failed);
  llvm::consumeError(failed.takeError());
  CHECK(folder.entries() == before);
}

TEST_CASE("an output folder that cannot be made is named") {
  Kernels kernels;
  Folder folder;
  CompileOptions how = options(folder);
  std::error_code error;
  llvm::raw_fd_ostream(folder / "out", error) << "a file";
  auto failed = compileKernels(*kernels.module, toyFacts(), how);
  REQUIRE(!failed);
  CHECK_THAT(llvm::toString(failed.takeError()), Contains("cannot create") && Contains("/out/"));
  CHECK(folder.text("out") == "a file");
}

TEST_CASE("cubins come with their resources and a log") {
  if (auto nvrtc = runtime::Nvrtc::load(); !nvrtc) {
    WARN("skipped: " << llvm::toString(nvrtc.takeError()));
    return;
  }
  Kernels kernels;
  Folder folder;
  CompileOptions how = options(folder);
  how.cubins = true;
  auto artifact = compileKernels(*kernels.module, toyFacts(), how);
  if (!artifact)
    FAIL(llvm::toString(artifact.takeError()));
  const runtime::Kernel &kernel = artifact->plan.kernels.at(0);
  REQUIRE(kernel.resources);
  CHECK(kernel.resources->spillBytes == 0);
  CHECK(kernel.cubin == "kernels/m0.cubin");
  CHECK(folder.text("out/sm_90a/rows1/kernels/m0.cubin").substr(1, 3) == "ELF");
  CHECK_THAT(folder.text("out/sm_90a/rows1/build.log"),
             Contains("m0: " + std::to_string(kernel.resources->registers) +
                      " registers, 0 bytes spilled") &&
                 Contains("74896 bytes of shared memory"));
}
