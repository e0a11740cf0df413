//===- execute.h - Running a plan --------------------------------*- C++ -*-===//
//
// Sets up a plan's buffers and weights on a backend and runs its steps, whole or launch by launch.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_RUNTIME_EXECUTE_H
#define MEGALITH_RUNTIME_EXECUTE_H

#include "runtime/backend.h"
#include "runtime/fault.h"
#include "runtime/packing.h"
#include "runtime/step.h"
#include "runtime/trace.h"

#include "llvm/ADT/StringMap.h"

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

namespace megalith::runtime {

struct ExecuteOptions {
  int64_t maxPages = 4;   ///< of one sequence
  int64_t poolPages = 16; ///< of each layer's pool
  /// Sequences that layers with a window keep positions of (StepSequence::ring); 0: as many as a
  /// step may have.
  int64_t rings = 0;
  /// Launches that will be run: the weights and buffers of others are not set up. All by default.
  int64_t firstLaunch = 0;
  int64_t launchCount = -1;
  /// Buffers with role tap or input to bind; the others' slots stay null.
  std::set<std::string> optionalBuffers;
  uint64_t deadlineNs = 2'000'000'000; ///< of one wait
  uint32_t flags = 0;                  ///< LaunchFlags
  uint64_t delaySeed = 0;
  uint64_t launchBase = 0; ///< number of the first step's first launch
  int64_t tokenSteps = 0;  ///< most steps of one generate()
  Chaining chaining = Chaining::Programmatic;
  /// Launches whose records can be read back, the last ones that ran of a plan compiled with
  /// --trace: launch i overwrites what launch i - traced left.
  int64_t traced = 0;
  /// Of a plan of several ranks (planOfRank): rank 0 runs alone, and stores what it stores to the
  /// other ranks' replicas to where their words would be in its own (rank_args.h).
  bool mirror = false;
  uint32_t hopNs = 0; ///< mirror: RanksArgs::hop_ns
};

/// A plan set up on a backend. One step at a time.
class Executor {
public:
  /// Checks the plan against the backend, loads kernels, allocates and initialises buffers, packs
  /// weights. `folder` holds plan.json; `backend` must outlive the executor.
  static llvm::Expected<std::unique_ptr<Executor>> create(const Plan &plan, llvm::StringRef folder,
                                                          Backend &backend,
                                                          const OpenTensor &openTensor,
                                                          const ExecuteOptions &options);

  /// Makes `sequences` the step that launches work on, after checking the preconditions; nothing
  /// runs yet.
  llvm::Error setStep(std::span<const StepSequence> sequences);

  /// Runs all launches of the step, then moves the launch counter on.
  llvm::Error runStep();
  /// Runs launches [first, first + count) of the step and leaves the counter alone: for tests of
  /// one layer. Launches of a step should be run in order.
  llvm::Error runLaunches(int64_t first, int64_t count);
  /// What runLaunches hands to the backend, for graphs (CudaBackend::enqueue): of a looping kernel
  /// one launch of the machine. Its counters are right after a step that runLaunches ran, as long
  /// as every launch number since then was run.
  std::vector<PreparedLaunch> prepareLaunches(int64_t first, int64_t count) const;
  /// Moves the counter on by a step, as runStep does.
  llvm::Error finishStep();

  /// Runs the step and `steps` - 1 more without the host, each of the tokens that the step before
  /// chose: of every sequence the best of its last row's logits (codegen/device/argmax.cuh says
  /// what is best). A sequence of several rows goes on with its first. Returns the tokens chosen,
  /// [step][sequence]; the last of each has not been an input yet. Nothing runs unless pages of all
  /// positions to come are in the step's page tables, and tokenSteps suffices.
  llvm::Expected<std::vector<std::vector<int32_t>>> generate(int64_t steps);
  /// The launch behind a step's that moves the device's launch counter on by `launches`; with
  /// `feedback` tokens and positions too. The executor does not know of it until followDevice().
  PreparedLaunch prepareAdvance(int64_t launches, bool feedback) const;
  bool hasAdvance() const { return kernels.count(plan.advance); }
  /// Reads the step descriptor back from the device, where `advance` has changed it.
  llvm::Error followDevice();
  /// The step descriptor as last uploaded or read back.
  const StepDescriptor &descriptorNow() const { return step.descriptor; }

  /// Starts anew at launch number `launchBase` with other start delays (kLaunchDelays). Buffers
  /// keep what they hold: resetBuffer those whose sets are chosen by the launch number.
  void restart(uint64_t launchBase, uint64_t delaySeed);

  /// Whether runLaunches may run them; nothing does.
  llvm::Error checkReady(int64_t first, int64_t count) const;
  /// What a run of launches, of this executor's and others', came to: `error`, if it is one, with
  /// what the fault records tell: who waited for what, at the root. `launchOf`: index in the plan
  /// of the launch that came so many after the step's first, where that is not the number modulo
  /// the plan's; `place` makes the root's SM one of its rank.
  llvm::Error explain(llvm::Error error, std::span<const FaultRecord> faults,
                      const std::function<int64_t(uint64_t)> &launchOf = nullptr,
                      const std::function<void(FaultRecord &)> &place = nullptr);

  uint64_t launchBase() const { return step.descriptor.launch_base; }
  /// Number of launch `index` of the current step; its set of a words buffer is number % sets.
  uint64_t launchNumber(int64_t index) const { return launchBase() + uint64_t(index); }

  /// Where set `set` of a buffer lies, for kernels of a tool's own.
  llvm::Expected<Backend::Address> addressOf(llvm::StringRef name, int64_t layer = 0,
                                             int64_t set = 0) {
    return locate(name, layer, set, 0);
  }

  /// Reads a buffer back: set `set` of `layer` (0 where it has no layers).
  llvm::Expected<std::vector<unsigned char>> readBuffer(llvm::StringRef name, int64_t layer = 0,
                                                        int64_t set = 0);
  /// Writes one set from its start, e.g. crossing words for a launch that runs alone.
  llvm::Error writeBuffer(llvm::StringRef name, std::span<const unsigned char> bytes,
                          int64_t layer = 0, int64_t set = 0);
  /// Reads a weight of form `vector` of `layer` back: its k elements.
  llvm::Expected<std::vector<unsigned char>> readVector(llvm::StringRef name, int64_t layer = 0);
  /// Fills every set of a buffer as its init says (empty, poison, zero).
  llvm::Error resetBuffer(llvm::StringRef name);

  /// What launch `index` of the plan recorded; `number` is the launch's own, for decodeTrace to
  /// check. Needs ExecuteOptions::traced.
  llvm::Expected<LaunchRecord> readTrace(int64_t index, uint64_t number);

  /// K (after norm and RoPE) and V of one position of a sequence with this page table, in the pool
  /// of `layer`: [heads][dim] bf16 each.
  llvm::Error writeKv(int64_t layer, std::span<const int32_t> pages, int64_t position,
                      std::span<const uint16_t> key, std::span<const uint16_t> value);
  llvm::Error readKv(int64_t layer, std::span<const int32_t> pages, int64_t position,
                     std::span<uint16_t> key, std::span<uint16_t> value);

  /// The page table with which readKv and writeKv find a sequence in the pool of `layer`: its own,
  /// or that of its ring. `index`: of the sequence in its steps.
  std::vector<int32_t> kvPages(int64_t layer, const StepSequence &sequence, int64_t index) const;

  const Plan &getPlan() const { return plan; }

private:
  using Address = Backend::Address;
  Executor(Plan plan, Backend &backend, const ExecuteOptions &options)
      : plan(std::move(plan)), backend(backend), options(options) {}

  llvm::Error setUp(llvm::StringRef folder, const OpenTensor &openTensor);
  llvm::Error setUpLaunch(const Launch &launch, int64_t index, llvm::StringRef folder,
                          const OpenTensor &openTensor);
  llvm::Error setUpRecords();
  llvm::Error setUpSlot(const SlotBinding &slot, int64_t layer, const OpenTensor &openTensor);
  llvm::Error initialise(const Buffer &buffer, Address address);
  int64_t bufferBytes(const Buffer &buffer) const;
  bool isBound(const SlotBinding &slot) const;
  llvm::Expected<Address> locate(llvm::StringRef name, int64_t layer, int64_t set, int64_t bytes);
  llvm::Error upload();
  PreparedLaunch prepare(int64_t index) const;
  PreparedLaunch prepare(const Kernel &kernel, int64_t layer, int64_t index) const;
  PreparedLaunch prepareLoop(const Kernel &kernel, int64_t first, int64_t count) const;
  llvm::Error setCounters(int64_t first);
  llvm::Error describeFault(const RootFault &root, int64_t launch, llvm::Error cause) const;
  llvm::Error explain(llvm::Error error) { return explain(std::move(error), backend.faults()); }
  StepLimits limits() const;
  /// The window of a buffer of pages that is kept as a ring, else 0. A looping kernel has one page
  /// table for all its layers, so all have all positions.
  int64_t ringWindow(const Buffer &buffer) const {
    return plan.loopingKernel() ? 0 : buffer.window;
  }
  const Buffer *kvBuffer(const Kernel &kernel) const;
  const Buffer *kvBuffer(int64_t layer) const;

  /// A buffer or weight of one layer (-1: of none).
  using Key = std::pair<std::string, int64_t>;
  static Key key(const Plan &plan, llvm::StringRef name, int64_t layer);

  Plan plan;
  Backend &backend;
  ExecuteOptions options;
  std::map<Key, Address> addresses;
  llvm::StringMap<int> kernels;
  std::vector<Address> records; ///< launch i writes to records[i % size]
  Step step;
  bool hasStep = false, lost = false;
  Address descriptor = 0, pageTable = 0;
  std::map<int64_t, Address> ringTables; ///< by window
};

} // namespace megalith::runtime

#endif // MEGALITH_RUNTIME_EXECUTE_H
