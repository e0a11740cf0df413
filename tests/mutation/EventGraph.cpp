#include "tests/mutation/EventGraph.h"

#include "mlir/IR/AffineExpr.h"
#include "llvm/ADT/StringExtras.h"

#include <algorithm>
#include <set>

using namespace mlir;
using namespace megalith;
using namespace megalith::task;
using namespace megalith::mutation;

bool mutation::isCovered(const Area &area, llvm::ArrayRef<Area> by) {
  if (area.empty())
    return true;
  for (const Area &other : by) {
    if (!other.meets(area))
      continue;
    // What the first that meets it leaves over, cut into four.
    const int64_t top = std::max(area.row, other.row), bottom = std::min(area.rowEnd, other.rowEnd);
    const Area rest[] = {{area.row, top, area.col, area.colEnd},
                         {bottom, area.rowEnd, area.col, area.colEnd},
                         {top, bottom, area.col, std::max(area.col, other.col)},
                         {top, bottom, std::min(area.colEnd, other.colEnd), area.colEnd}};
    return llvm::all_of(rest, [&](const Area &part) { return isCovered(part, by); });
  }
  return false;
}

//===----------------------------------------------------------------------===//
// Unrolling
//===----------------------------------------------------------------------===//

EventGraph::EventGraph(KernelOp kernel, int64_t most)
    : kernel(kernel), most(most), sms(kernel.getSms()), ranks(kernel.getRanks()),
      isLooping(kernel.isLooping()) {
  for (Operation &op : kernel.getBody().front())
    if (auto symbol = dyn_cast<SymbolOpInterface>(op))
      decls[symbol.getNameAttr()] = &op;
  for (EdgeOp edge : kernel.edges()) {
    edgeIndex[edge.getSymNameAttr()] = edges.size();
    Edge known{edge, edge.getSlots(), edge.isGlobal(), static_cast<int>(edge.getFrom()), {}};
    for (auto to : edge.getTo().getAsRange<RoleAttr>())
      known.to.push_back(static_cast<int>(to.getValue()));
    edges.push_back(std::move(known));
  }
}

void EventGraph::build() {
  const int64_t all = ranks * sms;
  ofSm.resize(all);
  ofRole.resize(all);
  uses.assign(all, std::vector<EdgeUses>(edges.size()));
  for (int64_t sm = 0; sm < all; ++sm)
    for (int64_t launch = 0; launch < kernel.getLaunches().value_or(1); ++launch)
      for (auto stage : kernel.getOps<StageOp>()) {
        if (!stage.runsIn(launch) || sm % sms >= stage.getSms().value_or(sms))
          continue;
        for (int role = 0; role < 4; ++role)
          if (RoleOp region = stage.role(static_cast<Role>(role))) {
            SmallVector<int64_t, 5> dims = {sm % sms};
            walk(region.getBody().front(), stage, role, sm, launch, dims);
          }
      }
}

void EventGraph::walk(Block &block, StageOp stage, int role, int64_t sm, int64_t launch,
                      SmallVectorImpl<int64_t> &dims) {
  for (Operation &op : block) {
    if (auto loop = dyn_cast<ForOp>(op)) {
      const int64_t trips = tripsOf(loop, dims);
      dims.push_back(0);
      for (; dims.back() < trips; ++dims.back())
        walk(loop.getBody().front(), stage, role, sm, launch, dims);
      dims.pop_back();
    } else if (!isa<LocalOp>(op)) {
      addStep(&op, stage, role, sm, launch, dims);
    }
  }
}

void EventGraph::addStep(Operation *op, StageOp, int role, int64_t sm, int64_t launch,
                         ArrayRef<int64_t> dims) {
  const int id = nodes.size();
  Node node{sm, role, launch, op, SmallVector<int64_t, 5>(dims), {}, {}};
  auto &line = ofRole[sm][role];
  if (!line.empty())
    node.before.push_back(line.back());
  if (auto name = op->getAttrOfType<FlatSymbolRefAttr>("edge"); name && !isa<PollOp>(op)) {
    node.edge = edgeIndex.lookup(name.getAttr());
    EdgeUses &of = uses[sm][node.edge];
    if (isa<WaitOp, AcquireOp>(op)) {
      node.use = of.waits[role].size();
      of.waits[role].push_back(id);
    } else if (isa<PeekOp>(op)) {
      node.use = of.waits[role].size();
    } else if (isa<SignalOp, ReleaseOp, CopyOp>(op)) {
      node.use = of.signals.size();
      of.signals.push_back(id);
    }
  }
  inRole.push_back({role, static_cast<int>(line.size())});
  line.push_back(id);
  ofSm[sm].push_back(id);
  nodes.push_back(std::move(node));
}

int64_t EventGraph::tripsOf(ForOp loop, ArrayRef<int64_t> dims) {
  if (FlatSymbolRefAttr symbol = loop.getTrips().getSymbol())
    return std::min(cast<SymbolOp>(decls.lookup(symbol.getAttr())).getMax(), most);
  return leastOf(loop.getTrips().getMap().getValue(), dims);
}

int64_t EventGraph::evaluate(AffineExpr expr, ArrayRef<int64_t> dims) const {
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return constant.getValue();
  if (auto dim = dyn_cast<AffineDimExpr>(expr))
    return dim.getPosition() < dims.size() ? dims[dim.getPosition()] : 0;
  auto binary = cast<AffineBinaryOpExpr>(expr);
  const int64_t a = evaluate(binary.getLHS(), dims), b = evaluate(binary.getRHS(), dims);
  const int64_t quotient = b > 0 ? (a >= 0 ? a / b : -((-a + b - 1) / b)) : 0;
  switch (expr.getKind()) {
  case AffineExprKind::Add:
    return a + b;
  case AffineExprKind::Mul:
    return a * b;
  case AffineExprKind::FloorDiv:
    return quotient;
  case AffineExprKind::Mod:
    return a - quotient * b;
  default: // CeilDiv
    return quotient * b == a ? quotient : quotient + 1;
  }
}

int64_t EventGraph::leastOf(AffineMap map, ArrayRef<int64_t> dims) const {
  int64_t least = INT64_MAX;
  for (AffineExpr expr : map.getResults())
    least = std::min(least, evaluate(expr, dims));
  return std::max<int64_t>(least, 0);
}

Area EventGraph::areaOf(AccessAttr access, ArrayRef<int64_t> dims) const {
  AffineMap at = access.getAt().getValue();
  const unsigned results = at.getNumResults();
  const int64_t row = evaluate(at.getResult(results - 2), dims),
                col = evaluate(at.getResult(results - 1), dims);
  return {row, row + access.getRows(), col, col + leastOf(access.getCols().getValue(), dims)};
}

Area EventGraph::wordsOf(int node, AccessAttr access) const {
  Area area = areaOf(access, nodes[node].dims);
  if (access.getOwn()) {
    auto exchange = cast<ExchangeOp>(decls.lookup(access.getBuffer().getAttr()));
    const int64_t begin = rankOf(node) * (exchange.cols() / ranks);
    area.col += begin;
    area.colEnd += begin;
  }
  return area;
}

const std::vector<EventGraph::Touch> &EventGraph::touchesOf(Operation *op) {
  auto [it, isNew] = touches.try_emplace(op);
  if (!isNew)
    return it->second;
  auto add = [&, &list = it->second](AccessAttr access, bool isWrite) {
    Touch touch{access, isWrite, decls.lookup(access.getBuffer().getAttr()), std::nullopt};
    if (FlatSymbolRefAttr table = access.getTable())
      touch.axiom = cast<TableOp>(decls.lookup(table.getAttr())).getAxiom();
    list.push_back(touch);
  };
  for (auto [name, isWrite] : {std::pair("reads", false), std::pair("writes", true)})
    if (auto array = op->getAttrOfType<ArrayAttr>(name))
      for (auto access : array.getAsRange<AccessAttr>())
        add(access, isWrite);
  if (auto copy = dyn_cast<CopyOp>(op))
    add(copy.getSource(), false);
  return it->second;
}

std::string EventGraph::placeOf(int id) const {
  const Node &node = nodes[id];
  std::string text;
  llvm::raw_string_ostream out(text);
  if (ranks > 1)
    out << "rank " << rankOf(id) << ' ';
  out << "SM " << node.dims[0] << " launch " << node.launch << ' '
      << stringifyRole(static_cast<Role>(node.role)) << ' ' << node.op->getName().stripDialect();
  for (int64_t index : ArrayRef(node.dims).drop_front())
    out << ' ' << index;
  out << ' ' << node.op->getLoc();
  return text;
}

std::string EventGraph::keyOf(int id) const {
  const Node &node = nodes[id];
  auto name = dyn_cast<NameLoc>(node.op->getLoc());
  std::string key = name ? name.getName().str() : "";
  for (int64_t part : {node.launch, int64_t(node.role)})
    key.append(reinterpret_cast<const char *>(&part), sizeof part);
  key.append(reinterpret_cast<const char *>(node.dims.data()),
             node.dims.size() * sizeof node.dims[0]);
  return key;
}

bool EventGraph::fail(const Twine &text, int node) {
  if (problem.empty())
    problem = text.str() + (node < 0 ? "" : " at " + placeOf(node));
  return false;
}

//===----------------------------------------------------------------------===//
// Orders of one SM
//===----------------------------------------------------------------------===//

static int64_t warpsOfRole(Role role) {
  return role == Role::Consumer ? 8 : 1;
}

bool EventGraph::checkDeclarations() {
  struct Bytes {
    Operation *op;
    int64_t begin, end;
    bool mayOverlap;
  };
  std::vector<Bytes> all;
  for (EdgeOp edge : kernel.edges()) {
    if (edge.getArrivals() != (edge.isGlobal() ? 1 : warpsOfRole(edge.getFrom())))
      return fail("@" + edge.getSymName() + " has the wrong number of arrivals");
    if (edge.getOffset())
      all.push_back({edge, *edge.getOffset(), *edge.getOffset() + 8 * edge.getSlots(), false});
  }
  for (auto ring : kernel.getOps<RingOp>())
    if (ring.getOffset() && (*ring.getOffset() % 128 || ring.getSlotBytes() % 128))
      return fail("bulk copies land on 128 byte lines");
  for (auto ring : kernel.getOps<RingOp>())
    if (ring.getOffset())
      all.push_back({ring, *ring.getOffset(),
                     *ring.getOffset() + ring.getSlots() * ring.getSlotBytes(), false});
  for (auto buffer : kernel.getOps<BufferOp>())
    if (buffer.getSpace() == Space::Smem && buffer.getOffset())
      all.push_back({buffer, *buffer.getOffset(), *buffer.getOffset() + buffer.byteSize(), true});
  for (const Bytes &a : all) {
    if (kernel.getSmemBytes() && a.end > *kernel.getSmemBytes())
      return fail("a place in shared memory lies beyond its end");
    for (const Bytes &b : all)
      if (a.op != b.op && !(a.mayOverlap && b.mayOverlap) && a.begin < b.end && b.begin < a.end)
        return fail("places in shared memory overlap");
  }
  // Ranks that exchange words tell each other when they may.
  int64_t numbers = 0;
  for (auto exchange : kernel.getOps<ExchangeOp>())
    numbers += exchange.getPeers() && exchange.getWord() == WordKind::Number;
  if (numbers != (ranks > 1))
    return fail("ranks have no exchange of numbers, or more than one");
  return true;
}

// Arrows of edges, and as many waits as signals in every launch.
bool EventGraph::joinEdges(int64_t sm) {
  std::vector<int> done(kernel.getLaunches().value_or(1), -1);
  for (int id : ofSm[sm])
    if (isa<LaunchDoneOp>(nodes[id].op)) {
      if (done[nodes[id].launch] >= 0)
        return fail("a launch ends twice", id);
      done[nodes[id].launch] = id;
    }
  for (int id : ofSm[sm]) {
    Node &node = nodes[id];
    if (isa<LaunchWaitOp>(node.op) && node.launch > 0) {
      if (done[node.launch - 1] < 0)
        return fail("waits for a launch that does not end", id);
      node.before.push_back(done[node.launch - 1]);
    }
    if (!isa<WaitOp, AcquireOp, PeekOp>(node.op))
      continue;
    const int64_t use = node.use - (isa<AcquireOp>(node.op) ? edges[node.edge].slots : 0);
    const auto &signals = uses[sm][node.edge].signals;
    if (use >= static_cast<int64_t>(signals.size()))
      return fail("waits for what is never signalled", id);
    if (use >= 0)
      node.before.push_back(signals[use]);
  }
  for (size_t e = 0; e < edges.size(); ++e) {
    if (edges[e].isGlobal)
      continue;
    auto count = [&](ArrayRef<int> list) {
      std::vector<int64_t> counts(done.size());
      for (int id : list)
        ++counts[nodes[id].launch];
      return counts;
    };
    for (int to : edges[e].to)
      if (count(uses[sm][e].signals) != count(uses[sm][e].waits[to]))
        return fail("@" + edges[e].op.getSymName() + " is not waited for as often as signalled");
  }
  return true;
}

bool EventGraph::close(int64_t sm) {
  const auto &list = ofSm[sm];
  const int first = list.empty() ? 0 : list.front(); // they were made one after the other
  std::vector<int> missing(list.size());
  std::vector<SmallVector<int, 4>> after(list.size());
  std::vector<int> ready;
  for (int id : list) {
    for (int before : nodes[id].before)
      after[before - first].push_back(id);
    missing[id - first] = nodes[id].before.size();
    if (nodes[id].before.empty())
      ready.push_back(id);
  }
  size_t done = 0;
  while (!ready.empty()) {
    const int id = ready.back();
    ready.pop_back();
    ++done;
    auto &known = over[id] = {};
    for (int before : nodes[id].before)
      for (int role = 0; role < 4; ++role)
        known[role] = std::max(known[role], over[before][role]);
    known[inRole[id].role] = inRole[id].index + 1;
    for (int next : after[id - first])
      if (--missing[next - first] == 0)
        ready.push_back(next);
  }
  return done == list.size() || fail("roles of SM " + Twine(sm) + " wait for each other");
}

bool EventGraph::hasLanded(const Access &copy, int node) const {
  const EdgeUses &of = uses[nodes[node].sm][copy.copyEdge];
  return llvm::any_of(of.waits, [&](const std::vector<int> &waits) {
    return copy.copyUse < static_cast<int64_t>(waits.size()) && isBefore(waits[copy.copyUse], node);
  });
}

// A barrier has two phases: a slot is signalled again only after its waiters passed.
bool EventGraph::checkPhases(int64_t sm) {
  for (size_t e = 0; e < edges.size(); ++e) {
    const EdgeUses &of = uses[sm][e];
    const int64_t slots = edges[e].slots;
    if (edges[e].isGlobal)
      continue;
    for (size_t use = slots; use < of.signals.size(); ++use)
      for (int to : edges[e].to) {
        const auto &waits = of.waits[to];
        if (use - slots >= waits.size() || !isBefore(waits[use - slots], of.signals[use]))
          return fail("signals a phase that somebody may still wait for", of.signals[use]);
      }
  }
  return true;
}

// All that the checks of one SM look at: its steps in order, and what they touch but for where in
// global memory.
std::vector<int64_t> EventGraph::doingsOf(int64_t sm) {
  std::vector<int64_t> all;
  for (int id : ofSm[sm]) {
    const Node &node = nodes[id];
    all.insert(all.end(), {reinterpret_cast<intptr_t>(node.op), node.role, node.launch});
    all.insert(all.end(), node.dims.begin() + 1, node.dims.end());
    for (const Touch &touch : touchesOf(node.op)) {
      const Area area = areaOf(touch.access, node.dims);
      auto buffer = dyn_cast<BufferOp>(touch.decl);
      if (buffer && buffer.getSpace() == Space::Smem)
        all.insert(all.end(), {area.row, area.rowEnd, area.col, area.colEnd});
      else
        all.push_back(area.empty());
    }
  }
  return all;
}

std::string EventGraph::fault() {
  if (!checkDeclarations())
    return problem;
  build();
  over.resize(nodes.size());
  // All ranks run the same program: what SMs do by themselves is looked at on one.
  for (int64_t sm = 0; sm < ranks * sms; ++sm)
    if (!joinEdges(sm))
      return problem;
  // SMs that do the same in shared memory are looked at once.
  std::map<std::vector<int64_t>, int64_t> kinds; // the first of each
  for (int64_t sm = 0; sm < sms; ++sm)
    if (auto [kind, isNew] = kinds.try_emplace(doingsOf(sm), sm); !isNew)
      for (auto [id, same] : llvm::zip_equal(ofSm[sm], ofSm[kind->second]))
        over[id] = over[same];
    else if (!close(sm) || !checkPhases(sm) || !checkMemory(sm) || !checkRing(sm) ||
             !checkLaunches(sm))
      return problem;
  if (!checkWords() || !checkArmed() || !checkPlaces() || !checkProgress())
    return problem;
  return "";
}

//===----------------------------------------------------------------------===//
// Comparing two kernels
//===----------------------------------------------------------------------===//

std::vector<EventGraph::Arrow> EventGraph::arrows() const {
  std::vector<Arrow> list;
  for (size_t id = 0; id < nodes.size() && rankOf(id) == 0; ++id)
    for (int before : nodes[id].before)
      if (nodes[before].role != nodes[id].role)
        list.push_back(
            {keyOf(before), keyOf(id),
             nodes[id].edge < 0 ? "" : EdgeOp(edges[nodes[id].edge].op).getSymName().str()});
  return list;
}

std::optional<std::string> EventGraph::way(const std::string &from, const std::string &to) {
  if (places.empty())
    for (size_t id = 0; id < nodes.size() && rankOf(id) == 0; ++id)
      places.insert({keyOf(id), id});
  auto begin = places.find(from), end = places.find(to);
  if (begin == places.end() || end == places.end() ||
      nodes[begin->second].sm != nodes[end->second].sm || !isBefore(begin->second, end->second))
    return std::nullopt;
  std::set<std::string> names;
  for (int at = end->second; at != begin->second;) {
    const int next = *llvm::find_if(nodes[at].before,
                                    [&](int before) { return isBefore(begin->second, before); });
    if (nodes[next].role != nodes[at].role)
      names.insert(nodes[at].edge < 0 ? "launch_wait"
                                      : "@" + EdgeOp(edges[nodes[at].edge].op).getSymName().str());
    at = next;
  }
  return llvm::join(names, ", ");
}
