//===- Session.h - A plan set up beside the reference ------------*- C++ -*-===//
//
// Sets a compiled plan up on a backend with made-up weights, tokens and KV contents (DESIGN section
// 5) and runs workloads on it: layer by layer, be it one launch or several, each compared with the
// evaluator started from what the launches before left; in one go, launches overlapping, for the
// bits; or step after step without the host, for the tokens.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_TOOLS_CHECK_SESSION_H
#define MEGALITH_TOOLS_CHECK_SESSION_H

#include "models/weights/weights.h"
#include "runtime/ranks.h"
#include "tools/check/Comparison.h"

#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace megalith::check {

/// Makes up the history of one sequence in a layer's pages: `sequence.start` positions of
/// `sequence.content` (models::kvIndex), in these pages of the layer's pool (Executor::kvPages).
using FillHistory = std::function<llvm::Error(
    int64_t layer, uint32_t seed, const Sequence &sequence, std::span<const int32_t> pages)>;

struct SessionOptions {
  uint32_t weightSeed = 1;
  /// What the largest workload needs: Workload::maxPages, totalPages.
  int64_t maxPages = 4, poolPages = 16;
  /// Only this layer's launch, on a made-up residual; else whole steps.
  std::optional<int64_t> layer;
  /// Planted in the reference, for tests that must fail.
  reference::Fault fault = reference::Fault::None;
  /// Also measure what the contract leaves open (ComparisonOptions::open).
  bool open = false;
  uint32_t launchFlags = 0; ///< LaunchFlags
  uint64_t deadlineNs = 2'000'000'000;
  unsigned threads = 2;                                         ///< of the evaluator
  runtime::Chaining chaining = runtime::Chaining::Programmatic; ///< of run
  int64_t tokenSteps = 0;                                       ///< most steps of generate
  int64_t traced = 0; ///< launches whose records `run` can read back (ExecuteOptions)
  /// With ranks.mirror the reference is that of a model whose tensors repeat rank 0's share
  /// (MirroredWeights); `mirrored` gives such a model to ranks that are all there, too.
  runtime::RankOptions ranks;
  bool mirrored = false;
  FillHistory fillHistory; ///< by default position by position from here, which takes its time
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

/// Whether a model makes much of a last bit, so that steps are to be measured by what the contract
/// leaves open (SessionOptions::open): gated residuals, which hand on what a layer adds undamped,
/// or quantised activations, where one bf16 rounded the other way moves a code.
bool amplifies(mlir::ModuleOp model);

/// What came of steps that fed each other.
struct Generation {
  std::vector<std::vector<int32_t>> tokens; ///< [step][sequence]
  Report report;                            ///< of the same steps, launch by launch
  /// Tokens that the evaluator's own step would not have chosen, though no logit of it is larger
  /// than the chosen one's by more than is allowed of its logits; and those where one is. Only
  /// where whole steps are compared (Report.h).
  int64_t nearTies = 0, wrongTokens = 0;
  bool passes() const { return report.passes() && wrongTokens == 0; }
};

class Session {
public:
  /// `module` is the model in the moe dialect, `folder` an artifact (codegen/Compile.h) with plan
  /// `plan`. Module and backend must outlive the session.
  static llvm::Expected<std::unique_ptr<Session>>
  create(mlir::ModuleOp module, const runtime::Plan &plan, llvm::StringRef folder,
         runtime::Backend &backend, const SessionOptions &options);

  /// Of several ranks: with the whole model's shapes.
  const runtime::Plan &plan() const { return executor->getPlan(); }

  /// Launches that a step of a workload runs.
  int64_t launchesPerStep() const { return launchCount; }

  /// Runs a workload launch by launch against the reference; `outcome`: what `run` would return;
  /// `values`: of each launch of the report.
  llvm::Expected<Report> compare(const Workload &workload, Outcome *outcome = nullptr,
                                 std::vector<LaunchValues> *values = nullptr);

  /// Runs a workload in one go a step, from poisoned scratch. `launchBase`: number of its first
  /// launch, which chooses the sets; `delaySeed`: of the start delays, with kLaunchDelays; `trace`:
  /// what the last step's last SessionOptions::traced launches recorded.
  llvm::Expected<Outcome> run(const Workload &workload, uint64_t launchBase = 0,
                              uint64_t delaySeed = 0, runtime::Trace *trace = nullptr);

  /// Runs a workload launch by launch and takes what each launch left, without comparing.
  llvm::Expected<std::vector<LaunchValues>> record(const Workload &workload);

  /// Runs options.tokenSteps steps from the workload's first on: launch by launch against the
  /// reference, the next tokens being the best of the kernels' logits; then in one go without the
  /// host, which must choose the same. Its sequences need pages for all positions
  /// (generationOf).
  llvm::Expected<Generation> generate(const Workload &workload);

  /// Plants another fault in the reference from now on.
  llvm::Error plant(reference::Fault fault) { return comparison->plant(fault); }

  /// Sets the first step of a workload up, from poisoned scratch, for tools that run it themselves.
  llvm::Error prepare(const Workload &workload, uint64_t launchBase = 0, uint64_t delaySeed = 0);
  runtime::RankGroup &getExecutor() { return *executor; }

private:
  using Matrix = reference::Matrix;

  // Names that passes/graph fixes (docs/kernel-contract.md, section 7).
  static constexpr const char *kResidual = "resid", *kQkv = "qkv", *kRouterLogits = "logits",
                              *kOutput = "out";

  explicit Session(const SessionOptions &options) : options(options), hashed(options.weightSeed) {}

  llvm::Error load(const Workload &workload, uint64_t launchBase, uint64_t delaySeed);
  llvm::Error poison(const runtime::Buffer &buffer);
  llvm::Error fillHistory(int64_t layer, const Workload &workload);
  llvm::Error begin(const std::vector<runtime::StepSequence> &sequences);
  llvm::Error writeInputs();
  llvm::Error compareStep(int64_t index, Report &report, std::vector<LaunchValues> *values);
  llvm::Expected<LaunchValues> valuesOf(const runtime::LaunchGroup &group);
  llvm::Expected<Matrix> readNewKv(int64_t layer);
  llvm::Expected<Outcome::StepOutcome> stepOutcome();
  llvm::Expected<runtime::Trace> readTrace();
  llvm::Expected<Matrix> read(llvm::StringRef buffer, int64_t launch);
  llvm::Error write(llvm::StringRef buffer, int64_t launch, const Matrix &values);
  bool isLast(int64_t launch) const { return launch + 1 == int64_t(plan().launches.size()); }
  std::vector<int64_t> layersRun() const;

  SessionOptions options;
  models::HashedWeights hashed;
  std::optional<MirroredWeights> mirror;
  std::unique_ptr<runtime::RankGroup> executor;
  std::unique_ptr<Comparison> comparison;       ///< knows the executor's plan
  std::vector<runtime::LaunchGroup> groups;     ///< that run, compared one by one
  int64_t firstLaunch = 0, launchCount = 0;     ///< of all of them
  std::vector<runtime::StepSequence> sequences; ///< of the current step
};

} // namespace megalith::check

#endif // MEGALITH_TOOLS_CHECK_SESSION_H
