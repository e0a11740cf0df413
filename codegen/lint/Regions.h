//===- Regions.h - The order of marks that role regions allow ----*- C++ -*-===//
//
// A kernel's role regions as a finite automaton over marks: what a warp may do one after another.
// The number of a loop's turns is left out, since PTX shows loops and not how often they run.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_CODEGEN_LINT_REGIONS_H
#define MEGALITH_CODEGEN_LINT_REGIONS_H

#include "ir/task/Task.h"

#include <string>
#include <vector>

namespace megalith::lint {

/// What stands for griddepcontrol.wait and .launch_dependents, which have no marks of their own.
inline constexpr llvm::StringLiteral kLaunchWait = "launch_wait";
inline constexpr llvm::StringLiteral kLaunchDependents = "launch_dependents";

/// The mark of a re-arming, which names the exchange's slot: "rearm @slot05 relaxed.gpu".
std::string rearmMark(task::ExchangeOp exchange);

/// The marks of a poll of an exchange's words and of their publication: of gpu scope, of system
/// scope if ranks share them, numbers with release and acquire.
std::string pollMark(task::ExchangeOp exchange);
std::string publishMark(task::ExchangeOp exchange);

/// The exchange whose words an edge joins, if it is one's.
task::ExchangeOp exchangeOf(task::KernelOp kernel, llvm::StringRef edge);

/// Whether some warps of the role poll nothing: there are more of them than rows.
bool mayPollNothing(task::PollOp poll);

class Regions {
public:
  explicit Regions(task::KernelOp kernel);

  /// A step of the role regions that leaves a mark.
  struct Step {
    std::string mark;
    mlir::Operation *op;
    task::Role role;
    int from, to;         ///< states
    bool isAgain = false; ///< the same words once more, which need not be
  };
  /// States in ascending order, each once.
  using States = std::vector<int>;

  llvm::ArrayRef<Step> steps() const { return list; }
  /// Where a warp of any role may begin.
  States begin() const;
  /// After `mark`; empty where no role may do that here. Steps that it may have been are noted in
  /// `taken`, by number.
  States after(const States &states, llvm::StringRef mark, std::vector<bool> *taken) const;
  /// Whether a warp may be at its end here.
  bool mayEnd(const States &states) const;
  /// The marks that may come next.
  std::vector<std::string> expected(const States &states) const;

private:
  int newState() { return int(free.size() + (free.emplace_back(), 0)) - 1; }
  int addBlock(mlir::Block &block, int from);
  int addOp(mlir::Operation &op, int from);
  int addStep(mlir::Operation &op, int from, const std::string &mark);
  int addWords(mlir::Operation &op, int from, const std::string &mark);
  void close(States &states) const;

  task::KernelOp kernel;
  task::Role role = task::Role::Producer; ///< while it is built
  std::vector<std::vector<int>> free;     ///< state -> states reached without a mark
  std::vector<Step> list;
  std::vector<std::vector<int>> leaving; ///< state -> steps
  std::vector<int> begins, ends;
};

} // namespace megalith::lint

#endif // MEGALITH_CODEGEN_LINT_REGIONS_H
