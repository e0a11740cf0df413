//===- RealModel.cpp - A compiled model at real size on a GPU -------------===//

#include "tests/gpu/RealModel.h"

#include "passes/graph/GraphPasses.h"
#include "runtime/error.h"

#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MemoryBuffer.h"

namespace megalith::test {

using llvm::Error;
using llvm::Expected;
using runtime::problem;

models::Quantization quantizationOf(llvm::StringRef model) {
  const bool activations = model.ends_with("-w4a4");
  return {.experts = activations || model.ends_with("-nvfp4"),
          .activations = activations,
          .e4m3Kv = model.ends_with("-kv8")};
}

Expected<std::unique_ptr<Artifact>> Artifact::load(const std::string &folder) {
  auto artifact = std::make_unique<Artifact>();
  artifact->folder = folder;
  auto plan = runtime::readPlan(folder + "/plan.json");
  if (!plan)
    return plan.takeError();
  artifact->plan = std::move(*plan);
  const std::string file = folder + "/../../config.json";
  auto config = llvm::MemoryBuffer::getFile(file);
  if (!config)
    return problem("{0}: {1}", file, config.getError().message());
  models::Quantization quantization = quantizationOf(artifact->plan.model);
  quantization.experts |= llvm::any_of(
      artifact->plan.weights, [](const runtime::Weight &weight) { return weight.isNvfp4(); });
  quantization.e4m3Kv |= llvm::any_of(artifact->plan.buffers, [](const runtime::Buffer &buffer) {
    return buffer.element == runtime::Element::E4m3;
  });
  auto graph =
      models::importConfig(artifact->context, (*config)->getBuffer().str(), artifact->plan.model,
                           {.rows = artifact->plan.rows, .quantization = quantization});
  if (!graph)
    return graph.takeError();
  artifact->graph = std::move(*graph);
  // As when it was compiled: whether scores are bounded decides how probabilities round.
  mlir::PassManager bounds(&artifact->context);
  bounds.addPass(createBoundScores());
  if (mlir::failed(bounds.run(*artifact->graph)))
    return problem("{0}: moe-bound-scores fails on the imported graph", file);
  return artifact;
}

Expected<std::unique_ptr<RealModel>> RealModel::create(const Artifact &artifact) {
  std::unique_ptr<RealModel> model(new RealModel(artifact));
  auto cuda = runtime::CudaBackend::create();
  if (!cuda)
    return cuda.takeError();
  model->cuda = std::move(*cuda);
  if (Error error = model->cuda->check(artifact.plan))
    return error;
  auto nvrtc = runtime::Nvrtc::load();
  if (!nvrtc)
    return nvrtc.takeError();
  model->nvrtc.emplace(std::move(*nvrtc));
  auto fill =
      runtime::DeviceFill::create(model->cuda->driver(), *model->nvrtc, artifact.plan.target);
  if (!fill)
    return fill.takeError();
  model->fill = std::move(*fill);
  model->filled = std::make_unique<bench::FilledBackend>(*model->cuda, *model->fill, kSeed);
  auto table =
      model->cuda->allocate("page table of fills", kTablePages * 4, runtime::BufferSpace::Device);
  if (!table)
    return table.takeError();
  model->table = *table;
  return model;
}

Expected<std::unique_ptr<check::Session>> RealModel::session(const check::Workload &workload,
                                                             check::SessionOptions options) {
  options.weightSeed = kSeed;
  options.maxPages = workload.maxPages();
  options.poolPages = workload.totalPages();
  options.fillHistory = [this](int64_t layer, uint32_t seed, const check::Sequence &sequence,
                               std::span<const int32_t> pages) {
    return fillHistory(layer, seed, sequence, pages);
  };
  return check::Session::create(*artifact.graph, artifact.plan, artifact.folder, *filled, options);
}

Error RealModel::fillHistory(int64_t layer, uint32_t seed, const check::Sequence &sequence,
                             std::span<const int32_t> pages) {
  if (int64_t(pages.size()) > kTablePages)
    return problem("a history of {0} pages, expected at most {1}", pages.size(), kTablePages);
  if (Error error = cuda->write(table, pages.data(), int64_t(pages.size_bytes())))
    return error;
  auto pool = filled->pool(layer);
  if (!pool)
    return pool.takeError();
  FillPages job = runtime::fillPages(
      artifact.plan, layer, seed, reinterpret_cast<unsigned char *>(*pool),
      reinterpret_cast<const int32_t *>(table), int64_t(pages.size()), sequence.start);
  job.content = sequence.content;
  return fill->fill(job);
}

check::Workload steadyWorkload(int64_t rows, int64_t context) {
  check::Workload workload;
  for (int64_t row = 0; row < rows; ++row)
    workload.sequences.push_back({.start = context, .content = row});
  return workload;
}

} // namespace megalith::test
