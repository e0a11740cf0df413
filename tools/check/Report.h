//===- Report.h - A plan's launches against the reference --------*- C++ -*-===//
//
// What passes. The tolerances are those of models/reference/compare.h, on a launch's errors over
// all steps of a workload (their root mean square), with one step allowed twice as much. The
// reason: where kernel and reference differ in the last bit of anything (exp2 for exp, the inner
// order of a matrix unit), some value is rounded to the neighbouring bf16 and a layer's own
// rounding noise shows, which is about 3e-3 whatever the cause; for a single row of a narrow layer
// it scatters by half. On the host platform this happens in one layer of fifty, all others are
// equal to the bit. The smallest planted formula fault gives 3.7e-2.
//
// A residual or a step's logits may also be twice as far off as the contract itself leaves open.
// Where that is asked for (ComparisonOptions::open), the evaluator's results are compared with
// those of evaluators that differ in nothing but the order within 16 products and the last bits of
// exponentials and roots; the largest difference counts. The reason: at 8,192 positions of made-up
// keys the probabilities' roundings alone put layer 0's residual 4e-3 off, and in a deep model each
// layer's rounding noise goes through all layers behind it: the logits of two such evaluators of
// Qwen3-30B-A3B are 6e-2 apart at 129 positions, where kernels and evaluator are 5e-2.
//
// Where activations are quantised, a bf16 that is rounded the other way may move a code, which is
// up to a third of a value: a launch is then 2e-2 off (and so are evaluators, which is what it is
// held to), and a step from an fp32 residual that differs in its last bit 1e-1 to 4e-1. Whole steps
// of such a model are not compared.
//
#ifndef MEGALITH_TOOLS_CHECK_REPORT_H
#define MEGALITH_TOOLS_CHECK_REPORT_H

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace megalith::check {

/// One launch of one step. Errors are relative RMS over live rows, absent where the launch computes
/// no such thing; each is against the evaluator started from what the launches before left, so that
/// errors of layers do not add up.
struct LaunchReport {
  int64_t step = 0, launch = 0;
  std::string kernel;
  int64_t layer = -1;             ///< -1: the embedding's launch
  std::optional<double> residual; ///< what the launch leaves, for the kernel's own routing
  std::optional<double> router;   ///< router logits and expert weights
  std::optional<double> kv;       ///< the new positions' keys and values in the pages
  std::optional<double> qkv;      ///< projections for the next layer
  std::optional<double> head;     ///< logits over the vocabulary, from the kernel's last residual
  std::optional<double> whole;    ///< the same against a whole step of the evaluator
  /// How far whole steps of evaluators are apart that differ in nothing but what the contract
  /// leaves open (reference::Inner); the largest.
  std::optional<double> open;
  /// The same of this launch's residual, from what the launch before left.
  std::optional<double> openResidual;
  int64_t nearTies = 0;  ///< rows where the reference alone would choose other experts
  int64_t wrongRows = 0; ///< rows whose experts are not top-k of the kernel's own logits
  /// The first difference that is too large: "qkv: row 2, channels 64..127 …"; or empty.
  std::string difference;

  /// Within twice the tolerances, dead rows zero.
  bool passes() const;
};

struct Report {
  std::vector<LaunchReport> launches;

  /// Each launch passes, and its root mean square over the steps is within the tolerances.
  bool passes() const;
  /// Of each launch, the root mean square of its errors over the steps.
  std::vector<LaunchReport> meansOverSteps() const;
  /// The largest of each.
  LaunchReport overSteps() const;
  /// The largest of each error, the sum of near-ties, the first difference.
  LaunchReport largest() const;
  /// A line a launch, with a heading; then the largest errors and the tolerances.
  std::string table() const;
};

} // namespace megalith::check

#endif // MEGALITH_TOOLS_CHECK_REPORT_H
