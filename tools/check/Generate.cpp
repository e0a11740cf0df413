//===- Generate.cpp - Steps that feed each other, against the reference ---===//

#include "models/reference/compare.h"
#include "runtime/error.h"
#include "tools/check/Session.h"

#include <algorithm>
#include <cmath>

namespace megalith::check {

using llvm::Error;
using llvm::Expected;
using reference::Matrix;
using runtime::problem;

/// The best token of a row: the largest logit, the first among equals, a NaN before nothing but
/// NaNs.
static int32_t bestToken(std::span<const double> logits) {
  size_t best = 0;
  for (size_t i = 1; i < logits.size(); ++i)
    if (logits[i] > logits[best] || (std::isnan(logits[best]) && !std::isnan(logits[i])))
      best = i;
  return int32_t(best);
}

/// How far below the row's best logit the token's is, in units of the logits' RMS.
static double shortfall(std::span<const double> logits, int32_t token) {
  double squares = 0;
  for (double logit : logits)
    squares += logit * logit;
  const double rms = std::sqrt(squares / double(logits.size()));
  return (logits[size_t(bestToken(logits))] - logits[size_t(token)]) / rms;
}

/// The step behind one that chose `tokens`: each sequence goes on with its first row.
static std::vector<runtime::StepSequence> nextStep(std::vector<runtime::StepSequence> sequences,
                                                   const std::vector<int32_t> &tokens) {
  int32_t next = 0;
  for (size_t s = 0; s < sequences.size(); ++s) {
    runtime::StepSequence &sequence = sequences[s];
    const int32_t rows = int32_t(sequence.tokens.size());
    if (sequence.firstRow < 0)
      sequence.firstRow = next;
    next = sequence.firstRow + rows;
    sequence.start += rows;
    sequence.tokens = {tokens[s]};
  }
  return sequences;
}

Expected<Generation> Session::generate(const Workload &workload) {
  // Room for every position that the steps write.
  Workload roomy = workload;
  roomy.steps = options.tokenSteps;
  if (Error error = load(roomy, 0, 0))
    return error;
  Generation result;
  const std::vector<runtime::StepSequence> first = sequencesOf(roomy, 0, plan().vocab);
  std::vector<runtime::StepSequence> current = first;
  for (int64_t index = 0; index < options.tokenSteps; ++index) {
    if (Error error = begin(current))
      return error;
    std::vector<LaunchValues> values;
    if (Error error = compareStep(index, result.report, &values))
      return error;
    const Matrix &logits = values.back().result;
    std::vector<int32_t> &tokens = result.tokens.emplace_back();
    for (const reference::SequenceRows &sequence : comparison->step().sequences) {
      const int64_t row = sequence.firstRow + sequence.rows - 1;
      tokens.push_back(bestToken(logits.row(row)));
      // Where no whole step is compared, the evaluator's may well choose another.
      const LaunchReport &head = result.report.launches.back();
      if (!head.whole)
        continue;
      const double below = shortfall(comparison->wholeLogits().row(row), tokens.back());
      // Two logits may be off by what is allowed each, and single ones by more than their RMS.
      if (below > 10 * std::max(reference::kLogitsTolerance, 2 * head.open.value_or(0)))
        ++result.wrongTokens;
      else if (below > 0)
        ++result.nearTies;
    }
    if (Error error = executor->finishStep())
      return error;
    current = nextStep(std::move(current), tokens);
  }
  // Again from the start, without the host between.
  if (Error error = load(roomy, 3, 1))
    return error;
  if (Error error = begin(first))
    return error;
  auto tokens = executor->generate(options.tokenSteps);
  if (!tokens)
    return tokens.takeError();
  for (size_t s = 0; s < tokens->size(); ++s)
    if ((*tokens)[s] != result.tokens[s]) {
      const size_t q =
          size_t(std::ranges::mismatch((*tokens)[s], result.tokens[s]).in1 - (*tokens)[s].begin());
      return problem("step {0}, sequence {1}: expected token {2}, the best of the logits of the "
                     "same step run launch by launch, but the steps that feed each other chose {3}",
                     s, q, result.tokens[s][q], (*tokens)[s][q]);
    }
  return result;
}

} // namespace megalith::check
