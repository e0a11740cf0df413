// Mutants on the host platform: emitted, compiled by g++ and run under scheduler seeds, beside the
// plan they come from.
#pragma once

#include "tests/mutation/Subjects.h"
#include "tools/check/Session.h"

#include "codegen/PlanBuilder.h"

namespace megalith::mutation {

class HostRuns {
public:
  /// Runs the plan itself, under one seed. The error says what keeps it from running.
  static llvm::Expected<std::unique_ptr<HostRuns>> create(const SubjectSpec &spec,
                                                          const Loaded &loaded);
  ~HostRuns();

  /// What is wrong with a mutant under some seed of [1, seeds], or "": a fault of the machine, and
  /// other bits than the plan's if its arithmetic is the same.
  std::string run(mlir::ModuleOp mutant, int seeds, bool hasSameArithmetic);

  double compileSeconds = 0, runSeconds = 0;

private:
  HostRuns() = default;
  llvm::Error start(mlir::ModuleOp plan);
  llvm::Expected<check::Outcome> runOnce(mlir::ModuleOp plan, int seeds,
                                         const check::Outcome *expected);

  mlir::ModuleOp graph;
  ModelFacts facts;
  check::Workload workload;
  std::string folder, headers; ///< temporary
  check::Outcome outcome;      ///< of the plan itself
};

} // namespace megalith::mutation
