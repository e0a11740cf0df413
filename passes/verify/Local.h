// One SM's role regions, run abstractly: no values, only waits, signals and accesses.
//
// SMs share nothing but global memory, and no role chooses by what it happens to see: a Kahn
// network, in which every schedule reaches the same end. So what one SM does is decided by its own
// program alone, as long as its polls pass. One run decides, for one valuation of the symbols,
//   * deadlock: nothing can move although a role is not done;
//   * order: a vector clock per role says which accesses are ordered by the edges emitted;
//   * completeness: fillings of shared buffers, pieces of the ring, uses of edges.
// That the polls do pass is decided over all SMs, in Words.h, from the events a run leaves. Words
// carry no order for other memory: they join SMs for progress, never for the clocks.
#pragma once

#include "passes/verify/Faults.h"
#include "passes/verify/Program.h"

#include <vector>

namespace megalith::verify {

/// A number per role: steps done, or polls passed.
using Clock = std::array<uint32_t, kRoles>;

/// A poll or publication of words, the end of a launch or a wait for the one before, or a store, of
/// one SM: what other SMs may see of it.
struct Event {
  uint32_t instr; ///< in the role's code
  uint32_t dims;  ///< place of the loop indices in Summary::dims
  Clock after;    ///< polls of each role that must have passed before
  bool isPoll;    ///< or the wait for a launch: needs what other SMs do
};

/// Whose filling a step reads: the step that filled it anew.
struct Source {
  mlir::Operation *reader = nullptr, *writer = nullptr;
};

/// What a run leaves for the proof over all SMs. SMs with the same program share one: only
/// dimension 0, the SM itself, differs.
struct Summary {
  std::array<std::vector<Event>, kRoles> events;   ///< polls and publications, in program order
  std::array<std::vector<Event>, kRoles> unwaited; ///< stores before the role's launch_wait
  std::vector<Source> sources; ///< by access of shared memory, of its first turn
  std::vector<int64_t> dims;
  int64_t steps = 0;
  bool isDone = false;
};

/// Where a blocked run stands.
struct Standing {
  struct Of {
    const Instr *at = nullptr;      ///< null: done
    int64_t waits = 0, signals = 0; ///< of the edge it waits for
  };
  int64_t sm;
  std::array<Of, kRoles> roles;
};

class Local {
public:
  Local(const Program &program, const Valuation &valuation, Faults &faults);

  /// Runs `sm`, at most `budget` steps. Polls past a role's number in `passing` block. Faults of
  /// its ops are reported; whether it reached its end is in the summary.
  Summary run(int64_t sm, int64_t budget, const Clock *passing = nullptr);
  /// After a run that did not reach its end. Nothing if it took too many steps, which is reported.
  std::optional<Standing> standing() const;

private:
  struct Thread {
    int role = 0;
    size_t next = 0; ///< in the role's code
    Clock clock{};
    /// Own steps that all warps of the role are known to have come through: they met in a refill,
    /// or another role heard from each of them by an edge and said so.
    uint32_t met = 0;
    uint32_t polls = 0;
    int64_t steps = 0;
    llvm::SmallVector<int64_t, 8> dims;  ///< the SM, loop indices
    llvm::SmallVector<int64_t, 8> trips; ///< of the loops it is in
  };
  /// Use numbers count from 0; a role's n-th wait is for use n.
  struct EdgeState {
    std::vector<Clock> completed;                        ///< by use: what the signaller knew
    std::array<int64_t, kRoles> waits{};                 ///< uses waited for, by role
    std::array<std::vector<uint32_t>, kRoles> waitClock; ///< own clock at each wait, by role
    std::vector<int64_t> signalsIn;                      ///< by launch
    std::array<std::vector<int64_t>, kRoles> waitsIn;    ///< by role and launch
    int64_t signals() const { return completed.size(); }
  };
  /// One launch.
  struct LaunchState {
    Clock waited{};               ///< by role: own clock at its first launch_wait; 0: none
    Clock over{};                 ///< by role: own clock after its latest step
    std::optional<Clock> done;    ///< what was known at launch_done
    int64_t dones = 0;            ///< launch_done steps
    std::vector<int64_t> rearmed; ///< by global
    std::vector<std::pair<int, uint32_t>> rearmedBy; ///< by global: role, and its clock then
    int64_t dependentsLaunched = 0;
  };
  /// One access to shared memory. A bulk copy's write has landed for those who know of a wait for
  /// use `landing` of `edge`, whoever knows that it was issued.
  struct Record {
    int role;
    uint32_t clock;
    bool isWrite;
    Rect rect;
    mlir::Operation *op;
    int64_t use;   ///< the filling
    int edge = -1; ///< a store or load if negative
    int64_t landing = 0;
    bool isCopy() const { return edge >= 0; }
  };
  using Records = std::vector<Record>;
  struct Filling {
    int64_t use = -1;
    RectSet written, read;             ///< read: by others than those that work in place
    mlir::Operation *writer = nullptr; ///< the last that did not work in place
    Records shares; ///< that warps filled again without having met, and no step has read since
  };
  struct SharedState {
    std::vector<Records> slots;
    int64_t refills = 0;
    std::vector<Filling> fillings; ///< the latest, by use of the guard modulo slots + 2
  };
  struct RingState {
    std::vector<Records> slots;
    int64_t read = 0; ///< pieces read at least once
  };

  // Local.cpp: progress.
  void reset(int64_t sm);
  bool advance(Thread &thread);
  bool enterLoop(Thread &thread, const Instr &instr);
  void checkKnown(const Thread &thread, const Instr &instr, const Loop &loop);
  bool passes(Thread &thread, const Instr &instr);
  void act(Thread &thread, const Instr &instr);
  bool spend(Thread &thread, const Instr &instr, int64_t steps);
  bool waitFor(Thread &thread, int edge, int64_t slotsFree, bool stays = false);
  void signal(Thread &thread, const Instr &instr);
  void requireLaunchWait(Thread &thread, const Instr &instr, llvm::StringRef what);
  bool knowsLaunchWait(const Thread &thread, int launch) const;
  std::optional<int> unknownOf(const Thread &thread, int launch) const;
  void checkPace(const Thread &thread, const Instr &instr);
  bool waitForLaunch(Thread &thread, const Instr &instr);
  void endLaunch(Thread &thread, const Instr &instr);
  void pollWords(Thread &thread, const Instr &instr);
  void checkArmed(const Thread &thread, const Instr &instr);
  Event event(const Thread &thread, const Instr &instr, bool isPoll);
  void checkEnds();
  void checkLaunch(int index);

  // LocalMemory.cpp: shared memory.
  void access(Thread &thread, const Instr &instr, const Access &access);
  int64_t fillingOf(Thread &thread, const Instr &instr, const Shared &buffer);
  bool fill(SharedState &state, const Shared &buffer, int64_t use, const Rect &rect);
  bool reads(const Instr &instr, int decl) const;
  bool writes(const Instr &instr, int decl) const;
  void checkSlot(const Thread &thread, const Instr &instr, const Shared &buffer, int64_t use);
  void checkUnread(const Instr &instr, const Shared &buffer, Filling &filling, bool isInPlace,
                   const Rect &rect);
  void checkLeft(const Thread &thread, const Instr &instr, const Shared &buffer,
                 const Records &records, Filling &filling, const Record &record);
  void tellAgain(const Record &record, const Shared &buffer);
  void endShares(const Shared &buffer, Filling &filling,
                 llvm::function_ref<bool(const Record &)> isOver);
  void endFilling(const Shared &buffer, Filling &filling);
  bool isFilled(SharedState &state, const Shared &buffer, int64_t use, const Rect &rect);
  void tellUnfilled(const Instr &instr, const Shared &buffer, const Filling &filling, int64_t use,
                    const Rect &rect);
  void accessRing(Thread &thread, const Instr &instr, bool isWrite);
  bool knows(const Thread &thread, const Record &before) const;
  bool hasMet(const Thread &thread, const Record &before) const;
  bool isOrdered(const Thread &thread, const Record &before, const Record &record) const;
  void order(Thread &thread, const Records &records, mlir::Operation *memory, const Record &record);
  void meet(const Thread &thread, const Records &records, const Shared &buffer, const Shared &other,
            const Record &record);

  const Program &program;
  const Valuation &valuation;
  Faults &faults;
  int64_t sm = 0, budget = 0;
  bool isExhausted = false;
  Clock passing{};
  std::array<Thread, kRoles> threads;
  std::array<std::vector<uint32_t>, kRoles> pollClock; ///< own clock after each poll of words
  std::vector<EdgeState> edges;
  std::vector<SharedState> shared;
  std::vector<RingState> rings;
  std::vector<LaunchState> launches;
  Summary summary;
};

/// "producer", …
llvm::StringRef nameOfRole(int role);
/// Who does a step: "consumer of @o_proj".
std::string nameOfTask(mlir::Operation *step);

} // namespace megalith::verify
