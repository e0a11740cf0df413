// Subjects with the mutants that are drawn of them, in slices for processes.
#pragma once

#include "tests/mutation/Operators.h"
#include "tests/mutation/Reasons.h"
#include "tests/mutation/Subjects.h"

#include "llvm/ADT/StringMap.h"

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace megalith::mutation {

/// With $MEGALITH_FULL all mutants are taken, else some, drawn by a fixed seed.
bool isFull();

/// All mutants are worth all cores; a few must leave them to other tests.
unsigned workers();

/// When to begin nothing new: $MEGALITH_MINUTES after the program's start. What is left then is
/// counted as left; mutants come in an order drawn by a fixed seed, so what was done is a sample.
class Deadline {
public:
  Deadline();
  double minutes() const; ///< since the start
  bool isOver() const { return limit && minutes() >= *limit; }
  std::optional<double> limit;

private:
  double begin;
};

/// A plan, its mutants and who explains them.
struct Subject {
  SubjectSpec spec;
  std::unique_ptr<mlir::MLIRContext> context;
  Loaded loaded;
  std::vector<Mutation> mutations;
  std::vector<size_t> drawn; ///< of them, in an order drawn by the seed

  task::KernelOp original(task::KernelOp mutant) {
    return loaded.plan->lookupSymbol<task::KernelOp>(mutant.getSymName());
  }
  Explainer &explainerOf(task::KernelOp kernel);
  /// Emitted code, without comments, of a kernel of the plan.
  const std::string &codeOf(task::KernelOp kernel);

private:
  llvm::StringMap<std::unique_ptr<Explainer>> explainers;
  llvm::StringMap<std::string> codes;
};

/// The subjects whose names contain `only`, of configs alone if asked to, with `count` mutants of
/// all drawn by `seed`.
std::vector<Subject> drawSubjects(llvm::StringRef only, bool areConfigs, size_t count,
                                  uint64_t seed);

/// Whether verifiers or proof reject the mutant. Kernels that it left as they were are proved; the
/// plan it comes from is.
bool isRejected(const Mutant &mutant);

/// Some of a subject's drawn mutants: [begin, end) of them, slice `number` of `of`.
struct Slice {
  size_t subject, begin, end, number, of;
};

/// All drawn mutants, `most` at a time: the first slice of every subject, the second, …
std::vector<Slice> slicesOf(const std::vector<Subject> &subjects, size_t most);

/// Seconds of a steady clock.
double now();

/// Numbers in a line, of a job's process or for people.
template <size_t N> std::string lineOf(const std::array<size_t, N> &numbers) {
  std::string line;
  for (size_t number : numbers)
    line += (line.empty() ? "" : " ") + std::to_string(number);
  return line;
}
template <size_t N> void addLine(std::array<size_t, N> &numbers, llvm::StringRef line) {
  for (size_t &number : numbers) {
    size_t more = 0;
    line.consumeInteger(10, more);
    line = line.ltrim();
    number += more;
  }
}

} // namespace megalith::mutation
