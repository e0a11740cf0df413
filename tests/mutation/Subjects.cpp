#include "tests/mutation/Subjects.h"

#include "ir/moe/Moe.h"
#include "ir/task/Task.h"
#include "models/Import.h"
#include "passes/graph/GraphPasses.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

using namespace mlir;
using namespace megalith;
using namespace megalith::mutation;

std::string SubjectSpec::name() const {
  const char *mode = launch == LaunchMode::Fused      ? ""
                     : launch == LaunchMode::PerStage ? " per stage"
                                                      : " step";
  return llvm::sys::path::filename(file).split('.').first.str() +
         (isConfig() ? " rows " + std::to_string(rows) + " on " + std::to_string(sms) + " SMs"
                     : "") +
         (nvfp4 ? " nvfp4" : "") + (areInputsNvfp4 ? " w4a4" : "") + (e4m3Kv ? " e4m3 kv" : "") +
         (ranks > 1 ? " of each of " + std::to_string(ranks) + " ranks" : "") +
         (rankExperts == "auto" ? "" : " experts " + rankExperts) + mode;
}

const std::vector<SubjectSpec> &mutation::subjects() {
  static const std::string qwen = "models/configs/qwen3-moe-small.test.json",
                           mixtral = "models/configs/mixtral-small.test.json",
                           muse = "models/configs/muse-spark-tiny.test.json",
                           narrow = "models/configs/muse-spark-narrow.test.json";
  static const std::vector<SubjectSpec> all = {
      {"tests/ir/task/m0.mlir"},
      {"tests/mutation/hand.mlir"},

      {qwen, 1, 4},
      {qwen, 2, 5},
      {qwen, 4, 3},
      {qwen, 8, 4},
      {mixtral, 1, 3},
      {mixtral, 2, 4},
      {mixtral, 4, 6},
      {mixtral, 8, 4},
      {qwen, 2, 4, LaunchMode::PerStage},
      {mixtral, 8, 3, LaunchMode::PerStage},
      {qwen, 4, 4, LaunchMode::Step},
      {mixtral, 1, 5, LaunchMode::Step},

      {qwen, 2, 3, LaunchMode::Fused, /*ranks=*/2},
      {muse, 1, 5},
      {muse, 4, 4},
      // Tiles of their experts are dealt out.
      {qwen, 2, 5, LaunchMode::Fused, /*ranks=*/1, /*nvfp4=*/true},
      {muse, 1, 3, LaunchMode::Fused, /*ranks=*/1, /*nvfp4=*/true},
      {muse, 4, 5, LaunchMode::Fused, /*ranks=*/1, /*nvfp4=*/true},
      // The widest bucket: several column tiles, rounds and splits to a tile.
      {qwen, 16, 4},
      {muse, 16, 4},
      {.file = qwen, .rows = 2, .sms = 4, .e4m3Kv = true},
      {.file = muse, .rows = 2, .sms = 4, .nvfp4 = true, .areInputsNvfp4 = true},
      {.file = muse, .rows = 1, .sms = 4, .ranks = 2, .rankExperts = "nk"},
      // Consumers hold pieces in registers.
      {narrow, 1, 4, LaunchMode::Fused, /*ranks=*/2, /*nvfp4=*/true},
  };
  return all;
}

static llvm::Error problem(const llvm::Twine &text) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), text);
}

llvm::Expected<Loaded> mutation::load(MLIRContext &context, const SubjectSpec &spec) {
  context.loadDialect<task::TaskDialect, moe::MoeDialect, func::FuncDialect>();
  Loaded loaded;
  if (!spec.isConfig()) {
    loaded.plan = parseSourceFile<ModuleOp>(spec.file, &context);
    if (!loaded.plan)
      return problem("cannot read " + spec.file);
    return loaded;
  }
  auto text = llvm::MemoryBuffer::getFile(spec.file);
  if (!text)
    return problem(spec.file + ": " + text.getError().message());
  auto graph = models::importConfig(context, (*text)->getBuffer(), spec.file,
                                    {.rows = spec.rows,
                                     .quantization = {.experts = spec.nvfp4,
                                                      .activations = spec.areInputsNvfp4,
                                                      .e4m3Kv = spec.e4m3Kv}});
  if (!graph)
    return graph.takeError();
  loaded.graph = std::move(*graph);
  // As compilation does, before reference and kernels part.
  PassManager bounds(&context);
  bounds.addPass(createBoundScores());
  if (failed(bounds.run(*loaded.graph)))
    return problem(spec.name() + ": moe-bound-scores fails");
  loaded.plan = loaded.graph->clone();
  PassManager manager(&context);
  for (auto &pass : pipelinePasses({.target = "sm_90a",
                    .sms = spec.sms,
                    .launch = spec.launch,
                    .ranks = spec.ranks,
                    .rankExperts = spec.rankExperts}))
    addTo(manager, std::move(pass));
  if (failed(manager.run(*loaded.plan)))
    return problem(spec.name() + ": the pipeline fails");
  return loaded;
}
