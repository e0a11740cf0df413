// What launches may do when, in the event graph of an SM, and that all SMs get through them.
#include "tests/mutation/EventGraph.h"

using namespace mlir;
using namespace megalith;
using namespace megalith::task;
using namespace megalith::mutation;

bool EventGraph::checkLaunches(int64_t sm) {
  const int64_t launches = kernel.getLaunches().value_or(1);
  std::map<std::pair<int64_t, StringRef>, int> rearmed;
  std::vector<int> dependents(launches), done(launches);
  std::vector<std::vector<int>> waits(launches);
  for (int id : ofSm[sm])
    if (isa<LaunchWaitOp>(nodes[id].op))
      waits[nodes[id].launch].push_back(id);
  auto knows = [&](int id, int64_t launch) {
    return llvm::any_of(waits[launch], [&](int wait) {
      return (isLooping || nodes[wait].role == nodes[id].role) && isBefore(wait, id);
    });
  };
  for (int id : ofSm[sm]) {
    const Node &node = nodes[id];
    bool needsWait = isa<RearmOp, LaunchDependentsOp, LaunchDoneOp>(node.op);
    if (auto rearm = dyn_cast<RearmOp>(node.op))
      ++rearmed[{node.launch, rearm.getExchange()}];
    dependents[node.launch] += isa<LaunchDependentsOp>(node.op);
    done[node.launch] += isa<LaunchDoneOp>(node.op);
    for (const auto &[access, isWrite, decl, table] : touchesOf(node.op)) {
      auto exchange = dyn_cast<ExchangeOp>(decl);
      auto buffer = dyn_cast<BufferOp>(decl);
      if (isWrite && !areaOf(access, node.dims).empty())
        needsWait |= exchange || (buffer && buffer.getSpace() == Space::Global &&
                                  !(isLooping && buffer.getMutability() == Mutability::Pages));
      if (isWrite || !exchange || !isa<PollOp>(node.op))
        continue;
      if (access.getSet() == task::Set::Current)
        needsWait = true;
      else if (isLooping &&
               (node.launch == 0 || (!knows(id, node.launch) && !knows(id, node.launch - 1))))
        return fail("may poll a set with older words", id);
    }
    if (needsWait && !knows(id, node.launch))
      return fail("needs launch_wait", id);
    if (isa<LaunchDoneOp>(node.op))
      for (int other : ofSm[sm])
        if (nodes[other].launch == node.launch && !isBefore(other, id))
          return fail("the launch ends before this", other);
  }
  for (int64_t launch = 0; launch < launches; ++launch) {
    for (auto exchange : kernel.getOps<ExchangeOp>())
      if ((exchange.getWord() == WordKind::Sentinel) !=
          (rearmed[{launch, exchange.getSymName()}] == 1))
        return fail("@" + exchange.getSymName() + " is not re-armed once");
    if (dependents[launch] != !isLooping || done[launch] != isLooping)
      return fail("the launch does not end once");
  }
  // Launches that are two apart never meet.
  for (int role = 0; role < 4; ++role) {
    int64_t seen = -1;
    for (int id : ofRole[sm][role]) {
      const int64_t launch = nodes[id].launch;
      if (launch == seen)
        continue;
      seen = launch;
      for (int other : ofSm[sm])
        if (nodes[other].launch <= launch - 2 && !isBefore(other, id))
          return fail("begins while the last launch but one may go on", id);
    }
  }
  return true;
}

// The largest case as one graph over all SMs has no cycle.
bool EventGraph::checkProgress() {
  std::vector<std::vector<int>> after(nodes.size());
  std::vector<int> missing(nodes.size());
  std::map<int64_t, std::vector<int>> ends;
  for (size_t id = 0; id < nodes.size(); ++id)
    if (isa<LaunchDoneOp>(nodes[id].op))
      ends[nodes[id].launch].push_back(id);
  for (size_t id = 0; id < nodes.size(); ++id) {
    Node &node = nodes[id];
    if (isa<LaunchWaitOp>(node.op) && node.launch > 0)
      llvm::append_range(node.needs, ends[node.launch - 1]);
    auto join = [&](ArrayRef<int> list) {
      for (int before : list) {
        ++missing[id];
        after[before].push_back(id);
      }
    };
    join(node.before);
    join(node.needs);
  }
  std::vector<int> ready;
  for (size_t id = 0; id < nodes.size(); ++id)
    if (missing[id] == 0)
      ready.push_back(id);
  size_t done = 0;
  while (!ready.empty()) {
    const int id = ready.back();
    ready.pop_back();
    ++done;
    for (int next : after[id])
      if (--missing[next] == 0)
        ready.push_back(next);
  }
  return done == nodes.size() || fail("SMs wait for each other");
}
