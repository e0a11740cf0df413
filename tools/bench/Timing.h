//===- Timing.h - The ways to run a step, timed ------------------*- C++ -*-===//
#ifndef MEGALITH_TOOLS_BENCH_TIMING_H
#define MEGALITH_TOOLS_BENCH_TIMING_H

#include "runtime/cuda_backend.h"
#include "runtime/execute.h"
#include "tools/bench/Bench.h"
#include "tools/bench/DeviceTools.h"

namespace megalith::bench {

/// Launches at the end of a step whose records are read.
inline constexpr int64_t kTracedLaunches = 16;
/// Layers by which the longer of two graphs is longer that time layers in turn.
inline constexpr int64_t kTurns = 48;

/// Times one step of an executor, over and over: the sequences stay where they are, only the launch
/// counter moves on.
class Timing {
public:
  /// `plan`: the executor's, with all shards.
  Timing(runtime::CudaBackend &cuda, runtime::Executor &executor, const runtime::Plan &plan,
         const BenchOptions &options)
      : cuda(cuda), executor(executor), whole(plan), options(options),
        launches(int64_t(executor.getPlan().launches.size())) {}

  /// Measures all of a cell; `sequences` are those of its workload, their pages are filled.
  llvm::Error measure(std::span<const runtime::StepSequence> sequences, Cell &cell);

  /// The fp32 logits that every mode of `measure` left.
  const std::vector<unsigned char> &logitsOfStep() const { return logits; }

private:
  using Prepared = std::vector<runtime::PreparedLaunch>;
  using Enqueue = std::function<llvm::Error()>;

  llvm::Error route(Cell &cell);
  llvm::Error timeSeparate(Cell &cell);
  llvm::Error timeRotating(Cell &cell);
  llvm::Error rotate(const std::vector<runtime::LaunchGroup> &groups, const Cell &cell,
                     std::optional<Times> &times, Traffic &each);
  Traffic trafficOf(const Cell &cell, int64_t launch) const;
  llvm::Error readRecords(Cell &cell);
  llvm::Error timeFeedback(Cell &cell);
  /// `launchOf`: index in the plan of the launch so many behind the first, for messages; null: the
  /// launches are a step's.
  using LaunchOf = std::function<int64_t(uint64_t)>;
  llvm::Expected<std::vector<double>> timeSteps(const Enqueue &step, const LaunchOf &launchOf = {});
  llvm::Expected<std::vector<double>> timeGraph(const Prepared &step, int64_t count,
                                                const LaunchOf &launchOf = {});
  llvm::Expected<std::vector<double>> timeRounds(const std::vector<int64_t> &indices,
                                                 int64_t rounds);
  Prepared wholeStep(bool feedback) const;
  llvm::Error advance(int64_t count);
  llvm::Error synchronize(const LaunchOf &launchOf = {});
  llvm::Error begin();
  llvm::Error demandSameLogits(const char *mode);
  std::vector<runtime::LaunchGroup> equalLayers() const;
  std::vector<runtime::LaunchGroup> layersOf(const std::string &kernel) const;

  runtime::CudaBackend &cuda;
  runtime::Executor &executor;
  const runtime::Plan &whole;
  const BenchOptions &options;
  const int64_t launches; ///< of a step
  std::span<const runtime::StepSequence> sequences;
  int64_t advanced = 0;              ///< launches that the GPU has counted and the executor has not
  std::vector<unsigned char> logits; ///< of the launch-by-launch run
};

} // namespace megalith::bench

#endif // MEGALITH_TOOLS_BENCH_TIMING_H
