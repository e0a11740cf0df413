#include "passes/verify/Deadlock.h"

using namespace mlir;
using namespace megalith;
using namespace megalith::task;
using namespace megalith::verify;

namespace {

class Report {
public:
  Report(const Program &program, ArrayRef<Standing> blocked, Faults &faults)
      : program(program), blocked(blocked), faults(faults) {}

  // Most blocked roles only wait for other blocked roles. Those that wait for a role that is done
  // are the cause; else the members of a circle on one SM are; else (a circle over several SMs) all
  // are named.
  void run() {
    auto isCause = [&](const Standing &sm, int role) { return waitsForNobody(sm, role); };
    auto isOnCircle = [&](const Standing &sm, int role) { return waitsForItself(sm, role); };
    auto isBlocked = [](const Standing &, int) { return true; };
    if (!tellThose(isCause) && !tellThose(isOnCircle))
      tellThose(isBlocked);
  }

private:
  template <typename Pick> bool tellThose(Pick pick) {
    bool isAny = false;
    for (const Standing &sm : blocked)
      for (int role = 0; role < kRoles; ++role)
        if (sm.roles[role].at && pick(sm, role)) {
          tell(sm, role);
          isAny = true;
        }
    return isAny;
  }

  /// The roles that signal what this one waits for; polls wait on any SM's, and for words of two
  /// edges at once.
  SmallVector<int, 2> blockersOf(const Standing::Of &of) const {
    SmallVector<int, 2> roles = {program.edges[of.at->edge].from};
    if (auto poll = dyn_cast<PollOp>(of.at->op); poll && poll.getAlso())
      for (const Edge &edge : program.edges)
        if (Program::nameOf(edge.op) == *poll.getAlso() && edge.from != roles.front())
          roles.push_back(edge.from);
    return roles;
  }

  bool waitsForNobody(const Standing &sm, int role) const {
    const Standing::Of &of = sm.roles[role];
    const auto isBlocked = [&](const Standing &at) {
      return llvm::any_of(blockersOf(of), [&](int blocker) { return at.roles[blocker].at; });
    };
    const bool isOfAnySm = of.at->kind == Instr::Poll || of.at->kind == Instr::LaunchWait;
    return isOfAnySm ? llvm::none_of(blocked, isBlocked) : !isBlocked(sm);
  }

  bool waitsForItself(const Standing &sm, int role) const {
    SmallVector<int> behind = {role}; // that it waits for, by whatever way
    for (size_t i = 0; i < behind.size(); ++i)
      if (sm.roles[behind[i]].at)
        for (int blocker : blockersOf(sm.roles[behind[i]])) {
          if (blocker == role)
            return true;
          if (!llvm::is_contained(behind, blocker))
            behind.push_back(blocker);
        }
    return false;
  }

  static std::string wordsOf(PollOp poll) {
    std::string names = ("@" + poll.getEdge()).str();
    return poll.getAlso() ? names + " or @" + poll.getAlso()->str() : names;
  }

  std::string blockersText(const Standing::Of &of) const {
    std::string text;
    for (int blocker : blockersOf(of))
      text += (text.empty() ? "" : " or the ") + nameOfRole(blocker).str();
    return text;
  }

  void tell(const Standing &sm, int role) {
    const Standing::Of &of = sm.roles[role];
    const Edge &edge = program.edges[of.at->edge];
    InFlightDiagnostic fault = faults.at(of.at->op, sm.sm);
    fault << "deadlock: the " << nameOfTask(of.at->op);
    if (of.at->kind == Instr::Poll)
      fault << " polls words of " << wordsOf(cast<PollOp>(of.at->op))
            << " that nothing publishes in this launch; expected a task.compute of the "
            << blockersText(of) << " that writes them, before what waits for this poll";
    else if (of.at->kind == Instr::LaunchWait)
      fault << " waits for all SMs to be over with launch " << program.launches[of.at->launch - 1]
            << ", which not every one says; expected a task.launch_done in each launch of every SM";
    else
      fault << " waits for use " << of.waits << " of edge @" << Program::nameOf(edge.op)
            << ", which the " << nameOfRole(edge.from) << " signals " << of.signals
            << " times; expected a signal for each wait, and none that waits for this one";
    // Where the other side stands.
    for (int blocker : blockersOf(of))
      if (const Instr *at = sm.roles[blocker].at; at && blocker != role) {
        fault.attachNote(at->op->getLoc()) << "the " << nameOfTask(at->op) << " is blocked here";
        return;
      }
    fault.attachNote(edge.op->getLoc()) << "the edge is declared here";
  }

  const Program &program;
  ArrayRef<Standing> blocked;
  Faults &faults;
};

} // namespace

void megalith::verify::reportDeadlock(const Program &program, ArrayRef<Standing> blocked,
                                      Faults &faults) {
  Report(program, blocked, faults).run();
}
