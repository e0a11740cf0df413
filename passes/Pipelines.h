//===- Pipelines.h - the passes from a config's graph to role regions -------===//
#ifndef MEGALITH_PASSES_PIPELINES_H
#define MEGALITH_PASSES_PIPELINES_H

#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace megalith {

/// What one launch computes: from one layer's attention to the next one's projections, in one
/// persistent kernel; a stage of that; or a whole step, in a kernel that loops over it.
enum class LaunchMode { Fused, PerStage, Step };

/// What the kernels are for.
struct PipelineOptions {
  std::string target = "sm_90a"; ///< NVRTC architecture
  int64_t sms = 132;             ///< CTAs of every launch
  LaunchMode launch = LaunchMode::Fused;
  bool trace = false; ///< kernels record what their warps do
  int64_t ranks = 1;  ///< GPUs that compute a step together
  /// How they divide the experts' matrices and the one behind attention, and the type in which
  /// parts of sums travel, in the words of task-split-ranks.
  std::string rankExperts = "auto", rankOutput = "auto", rankSums = "f32";
};

/// The passes in order, from a module with a moe.step to one with a task.kernel at role level for
/// each different launch, or one for all. Each works on the module or on every kernel (its
/// getOpName()). The proof is not among them: see passes/verify.
std::vector<std::unique_ptr<mlir::Pass>> pipelinePasses(const PipelineOptions &options);

/// Adds a pass to a module's pass manager, nested if it works on kernels.
void addTo(mlir::OpPassManager &manager, std::unique_ptr<mlir::Pass> pass);

/// Makes --megalith-pipeline=target=…,sms=…,launch=…,ranks=…,experts=…,o-proj=…,sums=…,trace known
/// to megalith-opt.
void registerPipelines();

} // namespace megalith

#endif // MEGALITH_PASSES_PIPELINES_H
