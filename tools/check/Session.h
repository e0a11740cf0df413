//===- Session.h - A plan set up beside the reference ------------*- C++ -*-===//
//
// Sets a compiled plan up on a backend with made-up weights, tokens and KV contents (DESIGN section
// 5) and runs workloads on it: launch by launch, each compared with the evaluator started from what
// the launches before left; or in one go, launches overlapping, for the bits.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_TOOLS_CHECK_SESSION_H
#define MEGALITH_TOOLS_CHECK_SESSION_H

#include "models/reference/evaluator.h"
#include "models/weights/weights.h"
#include "runtime/execute.h"
#include "tools/check/Report.h"
#include "tools/check/Workload.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace megalith::check {

struct SessionOptions {
  uint32_t weightSeed = 1;
  /// What the largest workload needs: Workload::maxPages, totalPages.
  int64_t maxPages = 4, poolPages = 16;
  /// Only this layer's launch, on a made-up residual; else whole steps.
  std::optional<int64_t> layer;
  /// Planted in the reference, for tests that must fail.
  reference::Fault fault = reference::Fault::None;
  uint32_t launchFlags = 0; ///< LaunchFlags
  uint64_t deadlineNs = 2'000'000'000;
  unsigned threads = 2;                                         ///< of the evaluator
  runtime::Chaining chaining = runtime::Chaining::Programmatic; ///< of run
};

/// All that a workload's launches leave for others to read, by step. Values are exact, so equal
/// outcomes are equal bits; a value that nobody wrote is a NaN and equals nothing.
struct Outcome {
  struct StepOutcome {
    reference::Matrix residual; ///< after the last launch [R, H]
    reference::Matrix result;   ///< logits of the head, or projections for the next layer
    /// New keys and values of each sequence, in all layers.
    std::vector<std::vector<uint16_t>> kv;
    bool operator==(const StepOutcome &other) const;
  };
  std::vector<StepOutcome> steps;

  bool operator==(const Outcome &) const = default;
  /// Whether row `row` of every step has the bits of row `otherRow` of `other`, of whatever bucket.
  bool sameRow(int64_t row, const Outcome &other, int64_t otherRow) const;
};

/// Most positions of a sequence, new rows included, of a model in the moe dialect.
int64_t maxPositions(mlir::ModuleOp model);

/// What one launch left for others to read, in one step; rows that are dead are zero. Not there
/// (no rows): what the launch does not compute.
struct LaunchValues {
  reference::Matrix residual;     ///< [R, H]
  reference::Matrix result;       ///< projections for the next layer [R, …] or logits [R, vocab]
  reference::Matrix routerLogits; ///< [R, E]
  reference::Routing routing;     ///< what top-k makes of these logits: ids [R * k], weights [R, k]
};

class Session {
public:
  /// `module` is the model in the moe dialect, `folder` an artifact (codegen/Compile.h) with plan
  /// `plan`. Module and backend must outlive the session.
  static llvm::Expected<std::unique_ptr<Session>>
  create(mlir::ModuleOp module, const runtime::Plan &plan, llvm::StringRef folder,
         runtime::Backend &backend, const SessionOptions &options);

  const runtime::Plan &plan() const { return executor->getPlan(); }

  /// Launches that a step of a workload runs.
  int64_t launchesPerStep() const { return launchCount; }

  /// Runs a workload launch by launch against the reference; `outcome`: what `run` would return;
  /// `values`: of each launch of the report.
  llvm::Expected<Report> compare(const Workload &workload, Outcome *outcome = nullptr,
                                 std::vector<LaunchValues> *values = nullptr);

  /// Runs a workload in one go a step, from poisoned scratch. `launchBase`: number of its first
  /// launch, which chooses the sets; `delaySeed`: of the start delays, with kLaunchDelays.
  llvm::Expected<Outcome> run(const Workload &workload, uint64_t launchBase = 0,
                              uint64_t delaySeed = 0);

  /// Plants another fault in the reference from now on.
  llvm::Error plant(reference::Fault fault);

private:
  using Matrix = reference::Matrix;

  // Names that passes/graph fixes (docs/kernel-contract.md, section 7).
  static constexpr const char *kResidual = "resid", *kQkv = "qkv", *kRouterLogits = "logits",
                              *kOutput = "out";

  /// What a layer's launch alone starts from.
  struct Inputs {
    Matrix residual, qkv;
  };

  Session(mlir::ModuleOp module, const SessionOptions &options)
      : module(module), options(options), weights(options.weightSeed) {}

  llvm::Error load(const Workload &workload, uint64_t launchBase, uint64_t delaySeed);
  llvm::Error poison(const runtime::Buffer &buffer);
  llvm::Error fillCache(int64_t layer, const Workload &workload);
  llvm::Error begin(const Workload &workload, int64_t step);
  llvm::Error writeInputs(const Workload &workload, int64_t step);
  llvm::Error makeInputs(const Workload &workload, Inputs &made);
  llvm::Expected<LaunchReport> compareLaunch(int64_t launch, Matrix &residual,
                                             LaunchValues &values);
  llvm::Error compareLayer(int64_t launch, const Matrix &before, LaunchValues &values,
                           LaunchReport &report);
  llvm::Error compareKv(int64_t layer, LaunchReport &report);
  llvm::Error compareResult(int64_t launch, LaunchValues &values, LaunchReport &report);
  llvm::Error compareWhole(LaunchReport &report);
  llvm::Expected<Outcome::StepOutcome> stepOutcome();
  llvm::Expected<Matrix> read(llvm::StringRef buffer, int64_t launch);
  llvm::Error write(llvm::StringRef buffer, int64_t launch, const Matrix &values);
  bool isLast(int64_t launch) const { return launch + 1 == int64_t(plan().launches.size()); }
  std::vector<int64_t> layersRun() const;

  mlir::ModuleOp module;
  SessionOptions options;
  models::HashedWeights weights;
  std::optional<reference::Evaluator> evaluator;
  std::unique_ptr<runtime::Executor> executor;
  int64_t firstLaunch = 0, launchCount = 0;

  // Of the current step.
  std::vector<runtime::StepSequence> sequences;
  reference::Step step;
  std::vector<reference::ExpertIds> routing; ///< the kernels' choice, by layer
  Matrix input;                              ///< residual before options.layer
  /// By workload, its seed and the step: the evaluator takes long over a real layer's.
  std::map<std::tuple<std::string, uint32_t, int64_t>, Inputs> inputs;
  /// By layer: what the pages hold before the step; and what the evaluator alone would have put
  /// there, for whole steps.
  std::vector<reference::KvStore> caches, wholeCaches;
};

} // namespace megalith::check

#endif // MEGALITH_TOOLS_CHECK_SESSION_H
