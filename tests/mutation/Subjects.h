// The plans that are mutated: both families, all rows buckets, kinds of launches and several SM
// counts, and kernels written by hand.
#pragma once

#include "passes/Pipelines.h"
#include "runtime/plan.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/Error.h"

#include <string>
#include <vector>

namespace megalith::mutation {

struct SubjectSpec {
  std::string file; ///< a config, or kernels at role level
  int64_t rows = 1, sms = 4;
  LaunchMode launch = LaunchMode::Fused;
  int64_t ranks = 1;
  bool nvfp4 = false;               ///< NVFP4 experts
  bool areInputsNvfp4 = false;      ///< and what they multiply
  bool e4m3Kv = false;              ///< keys and values as e4m3
  std::string rankExperts = "auto"; ///< how ranks divide the experts' matrices (task-split-ranks)
  std::string name() const;
  bool isConfig() const { return llvm::StringRef(file).ends_with(".json"); }
};

/// All of them: at least 12 kernels each of which has role regions of its own.
const std::vector<SubjectSpec> &subjects();

/// A plan at role level, and the graph it was made from (null for kernels written by hand).
struct Loaded {
  mlir::OwningOpRef<mlir::ModuleOp> graph, plan;
};
llvm::Expected<Loaded> load(mlir::MLIRContext &context, const SubjectSpec &spec);

} // namespace megalith::mutation
