//===- Pipelines.cpp - the passes from a config's graph to role regions -----===//

#include "passes/Pipelines.h"

#include "passes/Passes.h"
#include "passes/graph/GraphPasses.h"

#include "mlir/Pass/PassOptions.h"
#include "mlir/Pass/PassRegistry.h"

namespace megalith {

std::vector<std::unique_ptr<mlir::Pass>> pipelinePasses(const PipelineOptions &options) {
  std::vector<std::unique_ptr<mlir::Pass>> passes;
  auto add = [&](std::unique_ptr<mlir::Pass> pass) { passes.push_back(std::move(pass)); };

  // What is computed. A launch must hold a layer's attention to the next one's projections before
  // anything is fused, since an exchange inside a launch costs less than one across.
  add(createCutLaunches());
  // From here on there are no tensors, only stages and the buffers between them. Fusion is part of
  // it: op by op there would be twenty exchanges a layer.
  add(createConvertToTask({.target = options.target, .sms = options.sms}));
  // What each rank has of it: from here on `sms` and shapes are of one.
  if (options.ranks > 1)
    add(createSplitRanks({.ranks = options.ranks,
                          .experts = options.rankExperts,
                          .outputProjection = options.rankOutput,
                          .sums = options.rankSums}));

  // Who computes it. Slices first: how many SMs a stage uses decides where its tiles go, and both
  // decide which SM reads what from which.
  add(createChooseTiles());
  add(createAssignSms());
  // Stages on their own hand each other values by the end of a launch, which changes all below.
  if (options.launch == LaunchMode::PerStage)
    add(createCutStages());

  // Waiting for what. Exact dependences need tiles in their places; a wait that another implies is
  // dropped before it gets a protocol.
  add(createMaterializeExchanges());
  add(createElideExchanges());

  // One kernel for all launches, or one for each: before anything that belongs to a kernel, ring
  // and memory, is planned.
  if (options.launch == LaunchMode::Step)
    add(createMergeLaunches());

  // With what. Streams first, as their ring brings edges of its own; then protocols, which say
  // which buffers and edges there are; last memory, which must hold them all and gives the ring
  // what is left.
  add(createPlanStreams());
  add(createSelectProtocol());
  add(createPlanMemory({.residents = options.launch == LaunchMode::PerStage ? 2 : 1}));

  // All decisions are made: write them down as straight lines of each warp role, which is what is
  // proved and printed.
  add(createLowerToRoles());
  if (options.trace)
    add(createTraceTask());
  return passes;
}

void addTo(mlir::OpPassManager &manager, std::unique_ptr<mlir::Pass> pass) {
  if (pass->getOpName() == task::KernelOp::getOperationName())
    manager.addNestedPass<task::KernelOp>(std::move(pass));
  else
    manager.addPass(std::move(pass));
}

namespace {

struct CommandLineOptions : mlir::PassPipelineOptions<CommandLineOptions> {
  Option<std::string> target{*this, "target", llvm::cl::desc("NVRTC architecture"),
                             llvm::cl::init(PipelineOptions().target)};
  Option<int64_t> sms{*this, "sms", llvm::cl::desc("SMs, one CTA on each"),
                      llvm::cl::init(PipelineOptions().sms)};
  Option<LaunchMode> launch{
      *this, "launch", llvm::cl::desc("what one launch computes"),
      llvm::cl::init(PipelineOptions().launch),
      llvm::cl::values(clEnumValN(LaunchMode::Fused, "fused", "a layer"),
                       clEnumValN(LaunchMode::PerStage, "per-stage", "a stage of a layer"),
                       clEnumValN(LaunchMode::Step, "step", "all layers, in a loop"))};
  Option<int64_t> ranks{*this, "ranks", llvm::cl::desc("GPUs that compute a step together"),
                        llvm::cl::init(PipelineOptions().ranks)};
  Option<std::string> experts{*this, "experts",
                              llvm::cl::desc("how ranks divide experts: auto, nn, nn-sums or nk"),
                              llvm::cl::init(PipelineOptions().rankExperts)};
  Option<std::string> output{
      *this, "o-proj", llvm::cl::desc("how ranks divide what is behind attention: auto, n, k"),
      llvm::cl::init(PipelineOptions().rankOutput)};
  Option<std::string> sums{*this, "sums",
                           llvm::cl::desc("type of parts of sums that ranks exchange: f32, bf16"),
                           llvm::cl::init(PipelineOptions().rankSums)};
  Option<bool> trace{*this, "trace", llvm::cl::desc("kernels record what their warps do"),
                     llvm::cl::init(false)};
};

} // namespace

void registerPipelines() {
  // The pass manager verifies the IR after every pass.
  mlir::PassPipelineRegistration<CommandLineOptions>(
      "megalith-pipeline", "from a module with a moe.step to kernels at role level",
      [](mlir::OpPassManager &manager, const CommandLineOptions &options) {
        for (auto &pass : pipelinePasses({.target = options.target,
                          .sms = options.sms,
                          .launch = options.launch,
                          .trace = options.trace,
                          .ranks = options.ranks,
                          .rankExperts = options.experts,
                          .rankOutput = options.output,
                          .rankSums = options.sums}))
          addTo(manager, std::move(pass));
      });
}

} // namespace megalith
