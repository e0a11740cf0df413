//===- Comparison.h - Launches against the evaluator -------------*- C++ -*-===//
//
// The reference's side of a check; needs no backend. A layer's history is made up when its launch
// is compared and dropped behind it, so that long contexts of a deep model fit into memory.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_TOOLS_CHECK_COMPARISON_H
#define MEGALITH_TOOLS_CHECK_COMPARISON_H

#include "models/reference/evaluator.h"
#include "runtime/plan.h"
#include "tools/check/KeptWeights.h"
#include "tools/check/MirroredWeights.h"
#include "tools/check/Report.h"
#include "tools/check/Values.h"
#include "tools/check/Workload.h"

#include "mlir/IR/OwningOpRef.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace megalith::check {

struct ComparisonOptions {
  uint32_t weightSeed = 1;
  std::optional<int64_t> layer; ///< only this layer's launch, on a made-up residual
  reference::Fault fault = reference::Fault::None; ///< planted, for tests that must fail
  unsigned threads = 2;                            ///< of the evaluator
  bool mirrored = false;                           ///< the weights and histories of MirroredWeights
  /// Also measure what the contract leaves open, of launches and of whole steps: as much work for
  /// each other way of adding (reference::kOtherInners).
  bool open = false;
  /// Only launches, each from what the one before left: no evaluator follows the whole step.
  bool launchesOnly = false;
};

/// What a layer's launch alone starts from.
struct LayerInputs {
  reference::Matrix residual, qkv;
};

class Comparison {
public:
  /// Module and plan must outlive the comparison.
  static llvm::Expected<std::unique_ptr<Comparison>>
  create(mlir::ModuleOp module, const runtime::Plan &plan, const ComparisonOptions &options);

  /// Plants another fault from now on.
  llvm::Error plant(reference::Fault fault);

  /// Starts a workload, then each of its steps in order; `sequences` are the step's.
  void begin(const Workload &workload);
  llvm::Error beginStep(const std::vector<runtime::StepSequence> &sequences);
  const reference::Step &step() const { return now; }

  /// Compares what a group of launches (Plan::groups) left; those of a step in order, from the
  /// first that runs. Adds the routing to `values`. Behind the last of a whole step its logits are
  /// compared with a step of the evaluator that was given the kernels' routing.
  llvm::Expected<LaunchReport> compare(const runtime::LaunchGroup &group, LaunchValues &values);
  /// Instead: takes what a group left for what the next starts from. Of steps whose launches alone
  /// are compared (launchesOnly), and that no step follows.
  void skip(const LaunchValues &values) { residual = values.residual; }
  /// The logits of that step of the evaluator.
  const reference::Matrix &wholeLogits() const { return whole.residual; }

  /// For options.layer: what its launch starts from, in the step begun.
  llvm::Expected<const LayerInputs *> inputs();
  /// The made-up history of a layer; the store is the same for all layers.
  reference::KvStore &history(int64_t layer);

private:
  using Matrix = reference::Matrix;
  /// Keys, then values, of a position of a step before.
  struct Appended {
    int64_t sequence, position;
    std::vector<double> kv;
  };

  Comparison(mlir::ModuleOp module, const runtime::Plan &plan, const ComparisonOptions &options)
      : module(module), plan(plan), options(options), hashed(options.weightSeed),
        mirror(hashed, plan),
        weights(options.mirrored ? static_cast<const models::WeightSource &>(mirror) : hashed) {}

  llvm::Error unmask();
  llvm::Error makeInputs(LayerInputs &made) const;
  llvm::Error compareLayer(const Matrix &before, LaunchValues &values, LaunchReport &report);
  /// A step of an evaluator's own, with the kernels' routing.
  struct OwnStep {
    Matrix residual; ///< in the end the logits
    /// By layer: what steps before put into the pages.
    std::vector<std::vector<Appended>> appended;
  };
  llvm::Error follow(const reference::Evaluator &with, OwnStep &own, int64_t layer,
                     reference::KvStore &cache, const reference::ExpertIds *routing);
  llvm::Error compareResult(const runtime::LaunchGroup &group, const LaunchValues &values,
                            LaunchReport &report);
  llvm::Error measureOpen(const Matrix &before, reference::KvStore &cache,
                          const reference::ExpertIds *routing, LaunchReport &report);
  void compareKv(const reference::KvStore &cache, const LaunchValues &values, LaunchReport &report);
  Matrix newKv(const reference::KvStore &cache) const;
  void append(std::vector<Appended> &list, const Matrix &kv) const;
  void restore(reference::KvStore &cache, const std::vector<Appended> &list) const;
  bool isLast(int64_t launch) const { return launch + 1 == int64_t(plan.launches.size()); }

  mlir::ModuleOp module;
  mlir::OwningOpRef<mlir::ModuleOp> unmasked; ///< what `module` then is
  const runtime::Plan &plan;
  ComparisonOptions options;
  models::HashedWeights hashed;
  MirroredWeights mirror;
  KeptWeights weights;
  std::optional<reference::Evaluator> evaluator;
  std::optional<reference::KvStore> cache; ///< one layer's

  Workload workload;
  reference::Step now;
  /// Of whole steps, and not of a model that quantises activations (Report.h).
  bool comparesWhole = true;
  Matrix residual; ///< that the launch before left
  OwnStep whole;
  /// With the other inner orders, if options.open.
  struct Other {
    reference::Evaluator evaluator;
    OwnStep step = {};
  };
  std::vector<Other> others;
  std::vector<std::vector<Appended>> appended; ///< by layer, what the kernels put into the pages
  /// By workload, its seed and the step: the evaluator takes long over a real layer's.
  std::map<std::tuple<std::string, uint32_t, std::vector<int64_t>>, LayerInputs> madeInputs;
};

} // namespace megalith::check

#endif // MEGALITH_TOOLS_CHECK_COMPARISON_H
