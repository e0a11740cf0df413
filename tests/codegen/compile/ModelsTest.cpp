//===- ModelsTest.cpp - Real models from config to cubin ------------------===//
//
// The whole way but for the proof: what a config becomes is a valid plan and sources that people
// can read and NVRTC compiles well. Where NVRTC or clang-format is not installed only their part is
// left out, with a warning.
//
//===----------------------------------------------------------------------===//

#include "codegen/Compile.h"
#include "models/Import.h"
#include "passes/Pipelines.h"
#include "runtime/nvrtc.h"
#include "tests/codegen/emit/Format.h"
#include "tools/megalith-opt/Registration.h"

#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"

#include <catch2/catch.hpp>

using namespace megalith;

namespace {

std::string textOf(const std::string &file) {
  auto text = llvm::MemoryBuffer::getFile(file);
  REQUIRE(text);
  return (*text)->getBuffer().str();
}

/// Compiles a config, writes below `folder`.
llvm::Expected<Artifact> compile(const std::string &config, llvm::StringRef target, int sms,
                                 int rows, llvm::StringRef folder, bool cubins) {
  mlir::DialectRegistry registry;
  registerDialects(registry);
  mlir::MLIRContext context(registry);
  auto module = models::importConfig(context, textOf(config), config, {.rows = rows});
  if (!module)
    return module.takeError();
  const ModelFacts facts = collectFacts(**module, "model");
  mlir::PassManager manager(&context);
  for (auto &pass : pipelinePasses({.target = target.str(), .sms = sms}))
    addTo(manager, std::move(pass));
  REQUIRE(succeeded(manager.run(**module)));
  CompileOptions options;
  options.outDir = folder.str();
  options.cubins = cubins;
  options.emit.origin = config;
  return compileKernels(**module, facts, options);
}

bool hasNvrtc() {
  auto nvrtc = runtime::Nvrtc::load();
  if (nvrtc)
    return true;
  WARN("not compiled: " << llvm::toString(nvrtc.takeError()));
  return false;
}

void check(const std::string &config, llvm::StringRef target, int sms, int rows,
           bool cubins = true) {
  llvm::SmallString<128> folder;
  REQUIRE(!llvm::sys::fs::createUniqueDirectory("models", folder));
  auto artifact = compile(config, target, sms, rows, folder, cubins && hasNvrtc());
  INFO(config << ", " << target.str() << ", rows " << rows);
  if (!artifact)
    FAIL(llvm::toString(artifact.takeError()));
  CHECK(artifact->plan.kernels.size() == 4); // embed, layer, last, advance
  CHECK(artifact->plan.advance == "advance");
  CHECK(int64_t(artifact->plan.launches.size()) == artifact->plan.layers + 1);
  for (const runtime::Kernel &kernel : artifact->plan.kernels) {
    const std::string source = textOf(artifact->folder + "/" + kernel.file);
    INFO(kernel.name);
    CHECK(llvm::StringRef(source).count('\n') <= 600);
    CHECK(test::formatFindings(source).value_or("") == "");
    if (kernel.resources)
      CHECK(kernel.resources->spillBytes == 0);
  }
  llvm::sys::fs::remove_directories(folder);
}

} // namespace

TEST_CASE("Qwen3-30B-A3B and Mixtral-8x7B for both targets") {
  // Compiling takes most of the time, so each target and each model is compiled once.
  check("models/configs/qwen3-30b-a3b.json", "sm_90a", 132, 1);
  check("models/configs/qwen3-30b-a3b.json", "sm_100a", 148, 1, /*cubins=*/false);
  check("models/configs/mixtral-8x7b.json", "sm_90a", 132, 1, /*cubins=*/false);
  check("models/configs/mixtral-8x7b.json", "sm_100a", 148, 1);
}

TEST_CASE("the small models in every bucket") {
  for (const char *config :
       {"models/configs/qwen3-moe-small.test.json", "models/configs/mixtral-small.test.json"})
    for (int rows : {1, 2, 4, 8})
      check(config, "sm_90a", 8, rows, /*cubins=*/false);
}
