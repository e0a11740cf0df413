// Why a mutant that the proof accepts may be accepted.
#pragma once

#include "tests/mutation/EventGraph.h"
#include "tests/mutation/Operators.h"

#include <memory>

namespace megalith::mutation {

enum class Reason {
  None,      ///< no reason: a hole in the proof, or in the second opinion
  Implied,   ///< every order that an edge gave is there still, by others
  Unneeded,  ///< the orders that are gone stood between no two accesses that meet
  Footprint, ///< the code is the same; what it is said to touch is in order
  Commutes,  ///< calls of a role changed places that have nothing in common but what both read
};

struct Explanation {
  Reason reason = Reason::None;
  std::string text; ///< the edges that imply it, or what is wrong
};

/// Gives each step of the plan a location of its own, which clones keep: how steps of a mutant are
/// found in the original.
void locateSteps(mlir::ModuleOp plan);

/// Explains mutants of one kernel.
class Explainer {
public:
  /// The kernel as it was, whose steps have been located.
  explicit Explainer(task::KernelOp original);

  /// Explains a mutant that the proof accepts. Each reason is checked on the mutant's own event
  /// graph, in the largest case and where no loop of a symbol runs more than once.
  Explanation explain(task::KernelOp mutant, const Mutation &mutation);

private:
  task::KernelOp original;
  std::string source;                ///< emitted
  std::unique_ptr<EventGraph> graph; ///< of the largest case
  std::vector<EventGraph::Arrow> arrows;
};

/// Calls and loops of each role in order: what values are computed from what.
std::string arithmeticOf(task::KernelOp kernel);

/// The kernel's emitted source, without digests; "" if it cannot be emitted.
std::string sourceOf(task::KernelOp kernel);

/// C++ without its comments and empty lines.
std::string withoutComments(llvm::StringRef source);

/// The largest case and one where every symbol is at most 1.
inline constexpr int64_t kCases[] = {INT64_MAX, 1};

} // namespace megalith::mutation
