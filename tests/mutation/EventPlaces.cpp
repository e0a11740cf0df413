// Words, outputs and weights over all SMs: each once, each wanted.
#include "tests/mutation/EventGraph.h"

#include <set>

using namespace mlir;
using namespace megalith;
using namespace megalith::task;
using namespace megalith::mutation;

namespace {
/// Rows that a table names: by its argument, and the SM unless it is uniform.
struct PlaneKey {
  StringRef table;
  int64_t argument = 0, sm = 0;
  bool operator<(const PlaneKey &o) const {
    return std::tie(table, argument, sm) < std::tie(o.table, o.argument, o.sm);
  }
};
/// Areas that were touched, each element once.
struct Touched {
  std::map<PlaneKey, std::vector<std::pair<Area, int>>> planes;
  bool add(const PlaneKey &key, const Area &area, int node) {
    auto &list = planes[key];
    for (const auto &[other, by] : list)
      if (other.meets(area))
        return false;
    list.push_back({area, node});
    return true;
  }
  std::vector<Area> areas(const PlaneKey &key) const {
    std::vector<Area> list;
    if (auto it = planes.find(key); it != planes.end())
      for (const auto &[area, by] : it->second)
        list.push_back(area);
    return list;
  }
  bool hasGap() const {
    std::map<std::pair<StringRef, int64_t>, std::set<int64_t>> arguments;
    for (const auto &[key, list] : planes)
      if (!key.table.empty())
        arguments[{key.table, key.sm}].insert(key.argument);
    return llvm::any_of(arguments, [](const auto &entry) {
      return *entry.second.begin() != 0 ||
             *entry.second.rbegin() + 1 != static_cast<int64_t>(entry.second.size());
    });
  }
};
} // namespace

static PlaneKey planeOf(AccessAttr access, std::optional<Axiom> axiom, int64_t argument,
                        int64_t sm) {
  if (!axiom)
    return {};
  return {access.getTable().getValue(), argument, *axiom == Axiom::Uniform ? 0 : sm};
}

// Words: each published once and polled; who polls needs whoever published. An exchange of ranks is
// one, since a word is stored to every replica; any other is each rank's own.
bool EventGraph::checkWords() {
  struct Words {
    ExchangeOp op;
    Touched published;
    std::vector<int> publishers;
    std::map<PlaneKey, std::vector<Area>> polled;
    bool isScattered = false, isGathered = false;
  };
  using WordsKey = std::tuple<int64_t, int64_t, StringRef>; // launch, rank, exchange
  std::map<WordsKey, Words> all;
  auto keyOf = [&](int id, ExchangeOp exchange, int64_t launch) {
    return WordsKey(launch, exchange.getPeers() ? 0 : rankOf(id), exchange.getSymName());
  };
  auto eachAccess = [&](int id, auto use) {
    for (const Touch &touch : touchesOf(nodes[id].op))
      if (auto exchange = dyn_cast<ExchangeOp>(touch.decl)) {
        const AccessAttr access = touch.access;
        const int64_t argument =
            touch.axiom ? evaluate(access.getAt().getValue().getResult(0), nodes[id].dims) : 0;
        if (!use(touch, exchange, wordsOf(id, access),
                 planeOf(access, touch.axiom, argument, nodes[id].sm)))
          return false;
      }
    return true;
  };
  for (size_t id = 0; id < nodes.size(); ++id)
    if (!eachAccess(id, [&](const Touch &touch, ExchangeOp exchange, const Area &area,
                            const PlaneKey &key) {
          if (area.empty())
            return true;
          if (area.row < 0 || area.col < 0 || area.rowEnd > exchange.rows() ||
              area.colEnd > exchange.cols())
            return fail("outside @" + exchange.getSymName(), id);
          if (!touch.isWrite)
            return true;
          const int64_t unit = exchange.hasTriples() ? 3 : exchange.getElement().isBF16() ? 2 : 1;
          if (area.col % unit || (area.colEnd % unit && area.colEnd < exchange.cols()))
            return fail("publishes part of a word", id);
          Words &words = all[keyOf(id, exchange, nodes[id].launch)];
          words.op = exchange;
          words.publishers.push_back(id);
          words.isScattered |= touch.axiom && touch.axiom != Axiom::Uniform;
          return words.published.add(key, area, id) || fail("publishes words again", id);
        }))
      return false;
  for (size_t id = 0; id < nodes.size(); ++id) {
    if (!isa<PollOp>(nodes[id].op))
      continue;
    if (!eachAccess(id, [&](const Touch &touch, ExchangeOp exchange, const Area &area,
                            const PlaneKey &key) {
          const bool isPrevious = touch.access.getSet() == task::Set::Previous;
          if (touch.isWrite || area.empty() || !exchange.isSelfValidating() ||
              (isPrevious && !isLooping))
            return true;
          Words &words = all[keyOf(id, exchange, nodes[id].launch - isPrevious)];
          words.polled[key].push_back(area);
          // What a table names when it is published, and its own number when it is polled.
          const bool isAnybodys = key.table.empty() && !words.published.planes.empty() &&
                                  !words.published.planes.begin()->first.table.empty();
          words.isGathered |= isAnybodys;
          if (words.isScattered || isAnybodys) {
            llvm::append_range(nodes[id].needs, words.publishers);
            return true;
          }
          for (const auto &[other, by] : words.published.planes[key])
            if (other.meets(area))
              nodes[id].needs.push_back(by);
          return isCovered(area, words.published.areas(key)) || fail("polls what never comes", id);
        }))
      return false;
  }
  for (auto &[key, words] : all) {
    ExchangeOp exchange = words.op;
    if (words.published.planes.empty())
      continue;
    if (words.published.hasGap())
      return fail("arguments of @" + exchange.getSymName() + " do not count from 0");
    const bool isAllPolled =
        words.isGathered && isCovered({0, exchange.rows(), 0, exchange.cols()}, words.polled[{}]);
    for (const auto &[plane, list] : words.published.planes) {
      const std::vector<Area> areas = words.published.areas(plane);
      for (const Area &area : areas) {
        const bool isWhole = plane.table.empty()
                                 ? isCovered({0, exchange.rows(), 0, exchange.cols()}, areas)
                                 : isCovered({area.row, area.rowEnd, 0, exchange.cols()}, areas);
        if (!isWhole)
          return fail("@" + exchange.getSymName() + " has words that nobody publishes");
        if (exchange.isSelfValidating() && !exchange.isCrossing() && !words.isScattered &&
            !isAllPolled && !isCovered(area, words.polled[plane]))
          return fail("@" + exchange.getSymName() + " has words that nobody polls");
        if (!plane.table.empty())
          continue;
        break;
      }
    }
    if (words.isScattered)
      for (const auto &[plane, list] : words.polled)
        for (const Area &area : list)
          if (!isCovered({area.row, area.rowEnd, 0, exchange.cols()}, list))
            return fail("@" + exchange.getSymName() + " is polled in part");
  }
  return true;
}

// Other ranks store to the sets that a rank empties in a launch once they have heard, of every SM
// of that rank, that it is done: so an SM says so after it emptied all of them, and each rank hears
// all.
bool EventGraph::checkArmed() {
  std::map<std::pair<int64_t, int64_t>, std::vector<int>> emptied; // by launch and SM
  std::map<std::pair<int64_t, int64_t>, std::vector<Area>> heard;  // by launch and rank
  std::vector<ExchangeOp> peers;
  ExchangeOp numbers;
  for (auto exchange : kernel.getOps<ExchangeOp>())
    if (exchange.getPeers() && exchange.getWord() == WordKind::Number)
      numbers = exchange;
    else if (exchange.getPeers())
      peers.push_back(exchange);
  if (!numbers)
    return true;
  auto empties = [&](int id, ExchangeOp exchange) {
    auto rearm = dyn_cast<RearmOp>(nodes[id].op);
    return rearm && rearm.getExchange() == exchange.getSymName();
  };
  for (size_t id = 0; id < nodes.size(); ++id)
    if (isa<RearmOp>(nodes[id].op))
      emptied[{nodes[id].launch, nodes[id].sm}].push_back(id);
  for (size_t id = 0; id < nodes.size(); ++id)
    for (const auto &[access, isWrite, decl, axiom] : touchesOf(nodes[id].op)) {
      if (access.getBuffer().getValue() != numbers.getSymName())
        continue;
      if (!isWrite) {
        if (isa<PollOp>(nodes[id].op) && access.getSet() == task::Set::Current)
          heard[{nodes[id].launch, rankOf(id)}].push_back(wordsOf(id, access));
        continue;
      }
      if (rankOf(id) > 0)
        continue; // as on rank 0, whose orders are known
      for (ExchangeOp exchange : peers)
        if (llvm::none_of(emptied[{nodes[id].launch, nodes[id].sm}], [&](int other) {
              return empties(other, exchange) && isBefore(other, id);
            }))
          return fail("tells other ranks before it has emptied @" + exchange.getSymName(), id);
    }
  for (int64_t launch = 0; launch < kernel.getLaunches().value_or(1); ++launch)
    for (int64_t rank = 0; rank < ranks; ++rank)
      if (!isCovered({0, numbers.rows(), 0, numbers.cols()}, heard[{launch, rank}]))
        return fail("rank " + Twine(rank) + " does not hear of all SMs");
  return true;
}

// Outputs and weights exactly once, everything inside; of one rank, since others have their own.
bool EventGraph::checkPlaces() {
  std::map<std::pair<int64_t, StringRef>, Touched> all;
  std::set<std::pair<int64_t, StringRef>> reached;
  for (size_t id = 0; id < nodes.size() && rankOf(id) == 0; ++id) {
    const Node &node = nodes[id];
    for (const auto &[access, isWrite, decl, axiom] : touchesOf(node.op)) {
      auto buffer = dyn_cast<BufferOp>(decl);
      auto weights = dyn_cast<WeightsOp>(decl);
      if (buffer && buffer.getSpace() == Space::Smem)
        continue;
      if (isa<CopyOp>(node.op) && isa<ExchangeOp>(decl))
        return fail("copies words", id);
      if (!buffer && !weights)
        continue;
      Area area = areaOf(access, node.dims);
      const StringRef name = access.getBuffer().getValue();
      reached.insert({node.launch, name});
      const int64_t rows = buffer ? buffer.rows() : weights.strips(),
                    cols = buffer ? buffer.cols() : weights.blocks();
      if (weights) {
        area.rowEnd = std::min(area.rowEnd, rows);
        auto stage = node.op->getParentOfType<StageOp>();
        for (auto slice : stage.getReads().getAsRange<AccessAttr>())
          if (slice.getBuffer() == access.getBuffer())
            area.rowEnd = std::min(area.rowEnd, areaOf(slice, node.dims[0]).rowEnd);
      }
      if (area.empty())
        continue;
      if (area.row < 0 || area.col < 0 || area.rowEnd > rows || area.colEnd > cols)
        return fail("outside @" + name, id);
      if (isWrite && buffer.getMutability() == Mutability::Immutable)
        return fail("writes an immutable buffer", id);
      if (buffer && buffer.getMutability() == Mutability::Pages && axiom != Axiom::Injective)
        return fail("touches pages without an injective table", id);
      const bool isOnce = weights || (isWrite && buffer.getMutability() == Mutability::Written);
      const int64_t argument =
          access.getTable() ? evaluate(access.getAt().getValue().getResult(0), node.dims) : 0;
      if (isOnce &&
          !all[{node.launch, name}].add(planeOf(access, axiom, argument, node.sm), area, id))
        return fail("touches @" + name + " twice", id);
    }
  }
  for (Operation &op : kernel.getBody().front()) {
    auto buffer = dyn_cast<BufferOp>(op);
    auto weights = dyn_cast<WeightsOp>(op);
    const bool isOutput = buffer && buffer.getMutability() == Mutability::Written;
    if (!weights && !isOutput)
      continue;
    const StringRef name = cast<SymbolOpInterface>(op).getName();
    const Area whole = {0, weights ? weights.strips() : buffer.rows(), 0,
                        weights ? weights.blocks() : buffer.cols()};
    int64_t writers = 0;
    for (auto &[key, touched] : all) {
      if (key.second != name)
        continue;
      ++writers;
      if (touched.hasGap())
        return fail("arguments of @" + name + " do not count from 0");
      for (const auto &[plane, list] : touched.planes)
        if (!isCovered(whole, touched.areas(plane)))
          return fail("@" + name + " is not touched everywhere");
    }
    if (isOutput && writers != 1)
      return fail("@" + name + " is not written in one launch");
    for (const auto &[launch, reachedName] : reached)
      if (weights && reachedName == name && !all.count({launch, name}) && most > 0)
        return fail("@" + name + " is not streamed");
  }
  return true;
}
