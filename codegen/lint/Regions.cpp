//===- Regions.cpp - From role regions to an automaton over marks ---------===//

#include "codegen/lint/Regions.h"

#include "mlir/IR/AffineExpr.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace megalith::task;

namespace megalith::lint {

std::string rearmMark(ExchangeOp exchange) {
  const int64_t slot = exchange.getSlot();
  return "rearm @slot" + std::string(slot < 10 ? "0" : "") + std::to_string(slot) + " relaxed.gpu";
}

Regions::Regions(KernelOp kernel) : kernel(kernel) {
  for (auto each : {Role::Producer, Role::Poller, Role::Consumer, Role::Epilogue}) {
    role = each;
    const int begin = newState();
    int at = begin;
    for (auto stage : kernel.getOps<StageOp>()) {
      RoleOp region = stage.role(role);
      if (!region)
        continue;
      const int after = addBlock(region.getBody().front(), at);
      // A stage may be left out on this SM, or in this launch.
      if (stage.getSms().value_or(kernel.getSms()) < kernel.getSms() || stage.getDuring())
        free[at].push_back(after);
      at = after;
    }
    if (kernel.isLooping()) {
      free[at].push_back(begin);
      free[begin].push_back(at); // no launch at all
    }
    begins.push_back(begin);
    ends.push_back(at);
  }
  leaving.resize(free.size());
  for (auto [number, step] : llvm::enumerate(list))
    leaving[step.from].push_back(int(number));
}

int Regions::addBlock(Block &block, int from) {
  // A state of its own: what loops back to it must not come back to what stands before.
  int at = newState();
  free[from].push_back(at);
  for (Operation &op : block)
    at = addOp(op, at);
  return at;
}

/// Whether a loop runs at least once whatever the SM and the loops around it.
static bool runsAtLeastOnce(ForOp loop) {
  AffineMapAttr map = loop.getTrips().getMap();
  // Of a list of tiles only the most is known.
  return map && !loop.getIterate() &&
         llvm::all_of(map.getValue().getResults(), [](AffineExpr expr) {
           auto constant = dyn_cast<AffineConstantExpr>(expr);
           return constant && constant.getValue() >= 1;
         });
}

static std::string wordsMark(StringRef verb, ExchangeOp exchange, StringRef ofNumbers) {
  const StringRef order = exchange.getWord() == WordKind::Number ? ofNumbers
                          : exchange.getPeers()                  ? "relaxed.sys"
                                                                 : "relaxed.gpu";
  return (verb + " @" + exchange.getEdge() + " " + order).str();
}
std::string pollMark(ExchangeOp exchange) {
  return wordsMark("wait", exchange, "acquire.sys");
}
std::string publishMark(ExchangeOp exchange) {
  return wordsMark("signal", exchange, "release.sys");
}

ExchangeOp exchangeOf(KernelOp kernel, StringRef edge) {
  for (auto exchange : kernel.getOps<ExchangeOp>())
    if (exchange.getEdge() == edge)
      return exchange;
  return {};
}

bool mayPollNothing(PollOp poll) {
  return poll.getCallee().starts_with("poll_own_row");
}

int Regions::addStep(Operation &op, int from, const std::string &mark) {
  const int to = newState();
  list.push_back({mark, &op, role, from, to});
  return to;
}

/// Polls and publications, which a device function may make in several goes.
int Regions::addWords(Operation &op, int from, const std::string &mark) {
  const int to = addStep(op, from, mark);
  list.push_back({mark, &op, role, to, to, /*isAgain=*/true});
  return to;
}

int Regions::addOp(Operation &op, int from) {
  auto edgeMark = [](StringRef verb, StringRef edge, StringRef order) {
    return (verb + " @" + edge + " " + order).str();
  };
  return llvm::TypeSwitch<Operation *, int>(&op)
      .Case([&](ForOp loop) {
        const int begin = newState(), after = newState();
        free[from].push_back(begin);
        const int end = addBlock(loop.getBody().front(), begin);
        free[end].push_back(begin);
        free[end].push_back(after);
        if (!runsAtLeastOnce(loop))
          free[from].push_back(after);
        return after;
      })
      .Case<WaitOp, PeekOp>([&](auto op) {
        return addStep(*op, from, edgeMark("wait", op.getEdge(), "acquire.cta"));
      })
      .Case([&](AcquireOp op) {
        return addStep(*op, from, edgeMark("acquire", op.getEdge(), "acquire.cta"));
      })
      .Case([&](SignalOp op) {
        return addStep(*op, from, edgeMark("signal", op.getEdge(), "release.cta"));
      })
      .Case([&](ReleaseOp op) {
        return addStep(*op, from, edgeMark("release", op.getEdge(), "release.cta"));
      })
      .Case([&](CopyOp op) {
        return addStep(*op, from, edgeMark("copy", op.getEdge(), "async.cta"));
      })
      .Case([&](PaceOp op) {
        // The first copies have nothing to wait for.
        const int to = addStep(*op, from, edgeMark("pace", op.getEdge(), "relaxed.cta"));
        free[from].push_back(to);
        return to;
      })
      .Case([&](PollOp op) {
        ExchangeOp exchange = exchangeOf(kernel, op.getEdge());
        const int to =
            addWords(*op, from,
                     exchange ? pollMark(exchange) : edgeMark("wait", op.getEdge(), "relaxed.gpu"));
        if (mayPollNothing(op))
          free[from].push_back(to);
        return to;
      })
      .Case([&](ComputeOp op) {
        // As many publications as places: of one exchange, too, none stands for another.
        int at = from;
        for (auto write : op.getWrites().getAsRange<AccessAttr>())
          if (auto exchange = kernel.lookup<ExchangeOp>(write.getBuffer()))
            at = addWords(*op, at, publishMark(exchange));
        return at;
      })
      .Case([&](RearmOp op) {
        auto exchange = kernel.lookup<ExchangeOp>(op.getExchangeAttr());
        return addStep(*op, from, rearmMark(exchange));
      })
      .Case([&](LaunchWaitOp op) {
        return addStep(*op, from,
                       op.getEdge() ? edgeMark("wait", *op.getEdge(), "acquire.gpu")
                                    : kLaunchWait.str());
      })
      .Case([&](LaunchDoneOp op) {
        return addStep(*op, from, edgeMark("signal", op.getEdge(), "release.gpu"));
      })
      .Case([&](LaunchDependentsOp op) { return addStep(*op, from, kLaunchDependents.str()); })
      .Default([&](Operation *) { return from; });
}

void Regions::close(States &states) const {
  for (size_t i = 0; i < states.size(); ++i)
    for (int to : free[states[i]])
      if (!llvm::is_contained(states, to))
        states.push_back(to);
  llvm::sort(states);
}

Regions::States Regions::begin() const {
  States states(begins);
  close(states);
  return states;
}

Regions::States Regions::after(const States &states, StringRef mark,
                               std::vector<bool> *taken) const {
  States reached;
  for (int state : states)
    for (int number : leaving[state])
      if (list[number].mark == mark) {
        if (taken)
          (*taken)[number] = true;
        if (!llvm::is_contained(reached, list[number].to))
          reached.push_back(list[number].to);
      }
  close(reached);
  return reached;
}

bool Regions::mayEnd(const States &states) const {
  return llvm::any_of(states, [&](int state) { return llvm::is_contained(ends, state); });
}

std::vector<std::string> Regions::expected(const States &states) const {
  std::vector<std::string> marks;
  for (int state : states)
    for (int number : leaving[state])
      if (!llvm::is_contained(marks, list[number].mark))
        marks.push_back(list[number].mark);
  return marks;
}

} // namespace megalith::lint
