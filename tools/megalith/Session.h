//===- Session.h - a plan beside the reference ------------------------------===//
//
// Sets an artifact up on a backend with made-up weights, tokens and KV contents (DESIGN section 5),
// runs it, and compares each launch with the evaluator, which starts from what the kernels before
// had computed: errors of layers do not add up.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_TOOLS_MEGALITH_SESSION_H
#define MEGALITH_TOOLS_MEGALITH_SESSION_H

#include "models/reference/compare.h"
#include "models/weights/weights.h"
#include "runtime/execute.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"

#include <memory>
#include <optional>
#include <vector>

namespace megalith::cli {

/// One sequence of the step: `rows` new rows behind `start` positions that are in its pages.
struct SessionSequence {
  int64_t start = 0;
  int64_t rows = 1;
  /// The sequence whose made-up tokens and history it has: two with the same are identical.
  int64_t content = 0;
};

struct SessionOptions {
  uint32_t seed = 1; ///< of weights, tokens and KV contents
  std::vector<SessionSequence> sequences;
  /// Only this layer's launch, on a made-up residual; else the whole step.
  std::optional<int64_t> layer;
  /// Planted in the reference, for tests that must fail.
  reference::Fault fault = reference::Fault::None;
  uint64_t delaySeed = 0; ///< of the start delays of SMs
};

/// A launch against the reference; relative RMS errors over live rows, absent where the launch
/// computes no such thing.
struct LaunchReport {
  int64_t launch = 0;
  std::string kernel;
  int64_t layer = -1;           ///< -1: the embedding's launch
  double residual = 0;          ///< what the launch leaves
  std::optional<double> router; ///< router logits
  std::optional<double> qkv;    ///< projections for the next layer
  std::optional<double> head;   ///< logits over the vocabulary
  int64_t nearTies = 0;         ///< rows where the reference alone would choose other experts
  int64_t wrongRows = 0;        ///< rows whose experts are not top-k of the kernel's own logits
  bool deadRowsAreZero = true;

  bool passes() const;
};

struct SessionReport {
  std::vector<LaunchReport> launches;

  bool passes() const;
  /// The largest of each error, 0 if there is none.
  LaunchReport largest() const;
};

class Session {
public:
  /// `folder` is an artifact (codegen/Compile.h, Compilation.h). `backend` must outlive the
  /// session.
  static llvm::Expected<std::unique_ptr<Session>>
  create(llvm::StringRef folder, runtime::Backend &backend, const SessionOptions &options);

  const runtime::Plan &plan() const { return executor->getPlan(); }

  /// Launch by launch, each against the reference.
  llvm::Expected<SessionReport> compare();

  /// The same work again in one go, launches overlapping. The bits of the last residual (and of the
  /// logits).
  llvm::Expected<std::vector<unsigned char>> run();

private:
  using Matrix = reference::Matrix;

  Session(const SessionOptions &options) : options(options), weights(options.seed) {}

  llvm::Error load(llvm::StringRef folder);
  llvm::Error makeStep(const runtime::Plan &plan);
  llvm::Error fillCaches();
  llvm::Error begin();
  llvm::Expected<LaunchReport> compareLaunch(int64_t launch, Matrix &residual);
  llvm::Expected<Matrix> read(llvm::StringRef buffer, int64_t launch);
  llvm::Error write(llvm::StringRef buffer, int64_t launch, const Matrix &values);
  bool has(llvm::StringRef buffer) const { return plan().buffer(buffer); }

  SessionOptions options;
  models::HashedWeights weights;
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::optional<reference::Evaluator> evaluator;
  std::unique_ptr<runtime::Executor> executor;
  int64_t firstLaunch = 0, launchCount = 0;
  reference::Step step;
  std::vector<runtime::StepSequence> sequences;
  std::map<int64_t, reference::KvStore> caches; ///< by layer, as before the step
  Matrix input;                                 ///< residual before options.layer
};

} // namespace megalith::cli

#endif // MEGALITH_TOOLS_MEGALITH_SESSION_H
