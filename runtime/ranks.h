//===- ranks.h - Running a plan of several ranks -----------------*- C++ -*-===//
//
// A plan is of one rank; each rank has an executor of its own, with its share of the weights. A
// group sets up those that this process holds, tells each where the others' replicas of what they
// exchange are, runs them together and shows the whole model: what each rank has a part of is put
// together, what all have is compared.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_RUNTIME_RANKS_H
#define MEGALITH_RUNTIME_RANKS_H

#include "runtime/execute.h"
#include "runtime/rendezvous.h"

#include <memory>
#include <vector>

namespace megalith::runtime {

/// The plan with the shards of weights that `rank` has.
Plan planOfRank(const Plan &plan, int64_t rank);
/// The plan with the shapes of the whole model: outputs, projections, KV heads. For reading what
/// steps leave, not for running it.
Plan planOfAll(const Plan &plan);

struct RankOptions {
  /// Test hook: a word of another rank counts as arrived so much later than it is seen.
  uint32_t hopNs = 0;
  /// Virtual ranks share launches even where the backend could run them apart.
  bool together = false;
  /// Only rank 0 is set up, and runs alone with all its SMs: what it stores to the others' replicas
  /// goes to where their words would be in its own (rank_args.h), as many words as in reality. The
  /// values are those of a model whose tensors repeat rank 0's share (tools/check/MirroredWeights),
  /// and every function shows that whole model.
  bool mirror = false;
  /// This process has one rank, the others have theirs: all make the same calls, in the same order,
  /// and all get the whole model's values. Must outlive the group.
  Rendezvous *others = nullptr;
};

/// A plan's ranks. With tp 1 the executor itself. Else this process has one, on a GPU of its own,
/// or all of them on one backend: virtual ranks, which share every launch, or run as if each had a
/// GPU of its own where the backend can do that. Functions are those of Executor, over the whole
/// model.
class RankGroup {
public:
  static llvm::Expected<std::unique_ptr<RankGroup>>
  create(const Plan &plan, llvm::StringRef folder, Backend &backend, const OpenTensor &openTensor,
         const ExecuteOptions &options, const RankOptions &rankOptions = {});

  ~RankGroup();

  /// planOfAll.
  const Plan &getPlan() const { return whole; }
  /// A rank that this process has, counted from the first of them.
  Executor &member(int64_t index) { return *members[size_t(index)]; }

  llvm::Error setStep(std::span<const StepSequence> sequences);
  llvm::Error runLaunches(int64_t first, int64_t count);
  llvm::Error finishStep();
  /// As Executor::generate; only of one rank yet.
  llvm::Expected<std::vector<std::vector<int32_t>>> generate(int64_t steps);
  void restart(uint64_t launchBase, uint64_t delaySeed);
  uint64_t launchNumber(int64_t index) const { return members.front()->launchNumber(index); }

  /// The error names the rank whose replica is not like the first's.
  llvm::Expected<std::vector<unsigned char>> readBuffer(llvm::StringRef name, int64_t layer = 0,
                                                        int64_t set = 0);
  /// Whole rows, of which each rank gets its columns.
  llvm::Error writeBuffer(llvm::StringRef name, std::span<const unsigned char> bytes,
                          int64_t layer = 0, int64_t set = 0);
  llvm::Error resetBuffer(llvm::StringRef name);
  llvm::Error writeKv(int64_t layer, std::span<const int32_t> pages, int64_t position,
                      std::span<const uint16_t> key, std::span<const uint16_t> value);
  llvm::Error readKv(int64_t layer, std::span<const int32_t> pages, int64_t position,
                     std::span<uint16_t> key, std::span<uint16_t> value);
  /// As Executor::kvPages: ranks have the same pages.
  std::vector<int32_t> kvPages(int64_t layer, const StepSequence &sequence, int64_t index) const {
    return members.front()->kvPages(layer, sequence, index);
  }
  llvm::Expected<LaunchRecord> readTrace(int64_t index, uint64_t number) {
    return members.front()->readTrace(index, number);
  }

private:
  class Shared;

  RankGroup(const Plan &plan, Backend &backend, const ExecuteOptions &options,
            const RankOptions &rankOptions);
  llvm::Error setUp(llvm::StringRef folder, const OpenTensor &openTensor);
  bool isWhole() const { return plan.tp == 1; }
  bool runsApart() const { return backend.canRunApart() && !rankOptions.together; }
  llvm::Error setUpRank(int64_t rank, llvm::StringRef folder, const OpenTensor &openTensor);
  llvm::Error findReplicas();
  llvm::Error setUpPlaces();
  llvm::Error setUpMirror(llvm::StringRef folder, const OpenTensor &openTensor);
  PreparedLaunch joined(int64_t index, std::span<const PreparedLaunch> launches, size_t firstRank);
  llvm::Error run(int64_t first, int64_t count);
  llvm::Error explain(llvm::Error error);
  /// Every rank's, by rank; `own`: those of this process.
  llvm::Expected<std::vector<std::string>> ofAll(llvm::StringRef what,
                                                 std::vector<std::string> own);

  Plan plan, whole; ///< of a rank, with all shards; of all
  Backend &backend;
  ExecuteOptions options;
  RankOptions rankOptions;
  std::unique_ptr<Shared> shared; ///< what members see of the backend
  std::vector<std::unique_ptr<Executor>> members;
  int64_t firstRank = 0;                                   ///< of the members
  llvm::StringMap<std::vector<Backend::Address>> replicas; ///< of exchanges of ranks, by rank
  bool isFresh = true;         ///< other ranks may not know yet that memory here is set up
  Backend::Address places = 0; ///< RanksArgs::places
};

} // namespace megalith::runtime

#endif // MEGALITH_RUNTIME_RANKS_H
