//===- Engine.h - Role regions played in time --------------------*- C++ -*-===//
//
// Discrete events. A warp runs ahead on its own clock as long as what it does concerns its SM only:
// signals carry the time at which they are seen. Copies, words and launches are taken in order of
// time, for they depend on what all SMs do.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_PASSES_SIMULATE_ENGINE_H
#define MEGALITH_PASSES_SIMULATE_ENGINE_H

#include "passes/simulate/Memory.h"
#include "passes/simulate/Prices.h"
#include "passes/simulate/Simulate.h"
#include "passes/verify/Program.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"

#include <limits>
#include <queue>

namespace megalith::simulate {

inline constexpr int kWarps = 11, kConsumers = 8;
inline constexpr int kWarpsOf[verify::kRoles] = {1, 1, kConsumers, 1};
inline constexpr int kConsumer = int(task::Role::Consumer), kEpilogue = int(task::Role::Epilogue);

class Engine {
public:
  Engine(const Costs &costs, int64_t sms, std::optional<double> hopNs)
      : costs(costs), sms(sms), hopNs(hopNs), memory(costs, sms) {}
  /// Programs and prices outlive it. In the order of their launches.
  /// `facts`: of each of the program's launches, one but in a kernel that loops over a step's.
  void add(const verify::Program &program, const Prices &prices, std::vector<Facts> facts);
  /// Once. The error names what waits for ever.
  llvm::Expected<Timeline> run();

private:
  static constexpr double kNever = -1; ///< of a time that is not known yet

  /// Uses of one edge on one SM.
  struct EdgeState {
    std::vector<double> done;      ///< when use i can be seen, kNever if not complete
    std::vector<uint8_t> arrivals; ///< of use i so far
    std::vector<double> latest;    ///< of these
    llvm::SmallVector<std::pair<int64_t, int64_t>, 2> waiting; ///< (use, warp)
  };
  /// Words of one exchange that are polled together.
  struct Words {
    int64_t missing = 0;                                    ///< steps that have yet to publish some
    double first = std::numeric_limits<double>::infinity(); ///< when the first did
    double last = 0;                                        ///< when the last did
    double sum = 0;                                         ///< of the times of `count` that did
    int64_t count = 0;
    llvm::SmallVector<int64_t, 4> waiting;
  };
  struct Frame {
    int loop;
    int64_t trips, index;
  };
  struct Warp {
    int launch = 0, turn = 0;
    int64_t sm = 0;
    int role = 0, number = 0; ///< number: within the role
    uint32_t at = 0;
    double time = 0;
    int phase = 0; ///< of the step at `at`: what of it is done
    bool polls = false;
    llvm::SmallVector<int64_t, 6> dims;
    llvm::SmallVector<Frame, 4> frames;
    std::vector<int64_t> uses; ///< by edge
    std::vector<bool> seen;    ///< steps come to before
    WarpTimes times;
    std::vector<int> turns; ///< of times.stages
    bool inStage = false;
  };
  struct Sm {
    std::vector<EdgeState> edges;
    int met = 0; ///< consumers at the barrier
    double meeting = 0;
    llvm::SmallVector<int64_t, 8> atBarrier;
    int running = kWarps;
    double end = 0;
    int64_t place = 0; ///< the machine's SM that its CTA runs on
    bool released = false;
  };
  /// A launch of a kernel that loops over several: how many SMs have told that theirs is over.
  struct Turn {
    int64_t over = 0;
    double last = 0;
    llvm::SmallVector<int64_t, 0> waiting; ///< warps of the next, for it
  };
  struct Launch {
    const verify::Program *program = nullptr;
    const Prices *prices = nullptr;
    std::vector<Facts> facts; ///< by turn
    std::vector<Turn> turns;
    std::vector<Sm> sms;
    /// By (exchange's state in a turn, key).
    llvm::DenseMap<std::pair<int64_t, int64_t>, Words> words;
    int64_t released = 0, ended = 0;    ///< SMs that let the next begin; that are over
    int64_t dealt = 0;                  ///< CTAs that have begun, the first ones
    llvm::SmallVector<int64_t, 0> free; ///< places in the order in which its CTAs left them
    double lastEnd = 0;
    llvm::SmallVector<int64_t, 0> waiting; ///< warps of the next launch, for its end
    double begin = 0;
  };
  enum class EventKind : uint8_t { Resume, Start, End };
  struct Event {
    double time;
    uint64_t order;
    EventKind kind;
    int64_t what; ///< warp; or launch * sms + SM
    bool operator>(const Event &other) const {
      return std::tie(time, order) > std::tie(other.time, other.order);
    }
  };

  // Time.
  void schedule(double time, EventKind kind, int64_t what);
  void resume(int64_t warp, double time);
  /// False, and an event then, if the warp's clock is ahead of the machine's.
  bool isNow(int64_t warp);

  // A warp.
  void runWarp(int64_t warp);
  enum class Outcome { Next, Jumped, Blocked };
  Outcome step(int64_t warp, const verify::Instr &instr);
  Outcome enterStage(Warp &warp, const verify::Instr &instr);
  Outcome enterLoop(Warp &warp, const verify::Instr &instr);
  Outcome leaveLoop(Warp &warp, const verify::Instr &instr);
  Outcome wait(int64_t id, int edge, int64_t use, bool tells);
  Outcome copy(int64_t id, const verify::Instr &instr);
  Outcome compute(int64_t id, const verify::Instr &instr);
  Outcome poll(int64_t id, const verify::Instr &instr);
  Outcome awaitLaunch(int64_t id);
  Outcome awaitTurn(int64_t id);
  Outcome endTurn(int64_t id);
  Outcome meet(int64_t id);
  void closeStage(Warp &warp);
  void endWarp(int64_t id);

  // What they share.
  double doneOf(const Warp &warp, int edge, int64_t use) const;
  void arrive(Launch &launch, int64_t sm, int edge, int64_t use, double time, int arrivals);
  void complete(EdgeState &state, int64_t use, double time);
  void publish(Launch &launch, Warp &warp, const verify::Instr &instr);
  llvm::SmallVector<int64_t, 2> keysOf(const Launch &launch, const Warp &warp,
                                       const verify::Instr &instr,
                                       const verify::Access &access) const;
  static int64_t stateOf(const Launch &launch, const verify::Instr &instr,
                         const verify::Access &access);
  int64_t keyOf(const Launch &launch, const Warp &warp, const verify::Instr &instr,
                const verify::Access &access) const;
  Words *wordsOf(Launch &launch, const Warp &warp, const verify::Instr &instr,
                 const verify::Access &read);
  void countWords(Launch &launch);
  void countPublishing(Launch &launch, int role, int64_t sm);
  void setPolling(Warp &warp, bool polls);
  double hopOf(task::ExchangeOp exchange, int64_t bytes) const;
  int64_t bytesOf(const Launch &launch, const Warp &warp, const verify::Instr &instr,
                  const verify::Access &access) const;

  // Launches.
  void collect();
  void start(int launch, int64_t sm);
  void end(int launch, int64_t sm);
  void tryStarts(int launch);

  int64_t tripsOf(const Launch &launch, const verify::Loop &loop, int64_t sm,
                  llvm::ArrayRef<int64_t> dims) const;
  const Facts &factsOf(const Launch &launch, const Warp &warp) const {
    return launch.facts[size_t(warp.turn)];
  }
  int64_t splitsOf(const Facts &facts, const Warp &warp) const;
  double slownessOf(const Warp &warp, uint64_t token) const;
  const Tile *tileOf(const Launch &launch, const Warp &warp) const;
  bool isRing(const Launch &launch, int edge) const;
  std::string describe(const Warp &warp) const;

  const Costs &costs;
  const int64_t sms;
  const std::optional<double> hopNs; ///< in place of the costs'
  std::vector<Launch> launches;
  std::vector<Warp> warps;
  Memory memory;
  std::priority_queue<Event, std::vector<Event>, std::greater<Event>> events;
  double now = 0;
  uint64_t order = 0;
  int64_t polling = 0; ///< SMs' shares of warps that poll, in consumer warps
  Timeline timeline;
};

} // namespace megalith::simulate

#endif // MEGALITH_PASSES_SIMULATE_ENGINE_H
