// Shared memory and the ring in the event graph of an SM.
#include "tests/mutation/EventGraph.h"

#include <algorithm>
#include <set>

using namespace mlir;
using namespace megalith;
using namespace megalith::task;
using namespace megalith::mutation;

bool EventGraph::checkPair(const Access &a, const Access &b, StringRef what) {
  const bool isForward = isBefore(a.node, b.node);
  if (!isForward && !isBefore(b.node, a.node))
    return fail("no order between two accesses of " + what, a.node);
  const Access &first = isForward ? a : b, &second = isForward ? b : a;
  if (first.copyEdge >= 0 && !hasLanded(first, second.node))
    return fail("a bulk copy into " + what + " may not have landed", second.node);
  if (first.copyEdge < 0 && first.isWrite && second.copyEdge >= 0)
    return fail("a bulk copy follows stores into " + what, second.node);
  return true;
}

bool EventGraph::namesSlot(int id, const Access &access, BufferOp buffer,
                           ArrayRef<int64_t> waited) const {
  auto args = nodes[id].op->getAttrOfType<ArrayAttr>("args");
  if (!args || buffer.getSlots() == 1)
    return true;
  // Words of C++ that stand for something; what they stand for is looked up going backwards.
  std::set<std::string> open;
  auto addWords = [&](StringRef text) {
    std::string word;
    for (char c : text.str() + " ")
      if (isalnum(static_cast<unsigned char>(c)) || c == '_') {
        word += c;
      } else {
        open.insert(word);
        word.clear();
      }
  };
  for (auto arg : args.getAsRange<StringAttr>())
    addWords(arg);
  bool isGiven = false;
  for (Operation *at = nodes[id].op; !isa<RoleOp>(at); at = at->getParentOp())
    for (Operation *op = at->getPrevNode(); op; op = op->getPrevNode()) {
      if (auto local = dyn_cast<LocalOp>(op)) {
        if (open.erase(local.getName().str()))
          addWords(local.getInit().value_or(""));
        continue;
      }
      auto result = op->getAttrOfType<StringAttr>("result");
      if (!result || !open.erase(result.getValue().substr(result.getValue().rfind(' ') + 1).str()))
        continue;
      if (!isa<WaitOp, AcquireOp>(op))
        continue;
      const int edge = edgeIndex.lookup(op->getAttrOfType<FlatSymbolRefAttr>("edge").getAttr());
      const int64_t slots = EdgeOp(edges[edge]).getSlots(), use = waited[edge] - 1;
      isGiven = true;
      if (slots == buffer.getSlots() && use >= 0 && use % slots == access.slot)
        return true;
    }
  return !isGiven;
}

bool EventGraph::checkMemory(int64_t sm) {
  struct Shared {
    BufferOp op;
    std::vector<Access> accesses;
    std::vector<int> refills;
    bool overlaps(const Shared &other) const {
      auto begin = [](const Shared &of) { return *BufferOp(of.op).getOffset(); };
      auto end = [&](const Shared &of) { return begin(of) + BufferOp(of.op).byteSize(); };
      return BufferOp(op).getOffset() && BufferOp(other.op).getOffset() &&
             begin(*this) < end(other) && begin(other) < end(*this);
    }
  };
  std::vector<Shared> buffers;
  llvm::DenseMap<StringAttr, int> index;
  for (auto buffer : kernel.getOps<BufferOp>())
    if (buffer.getSpace() == Space::Smem) {
      index[buffer.getSymNameAttr()] = buffers.size();
      buffers.push_back({buffer, {}, {}});
    }
  for (int id : ofSm[sm])
    if (auto refill = dyn_cast<RefillOp>(nodes[id].op))
      buffers[index.lookup(refill.getBufferAttr().getAttr())].refills.push_back(id);

  // Uses of edges so far, by role: which filling an access means.
  std::array<std::vector<int64_t>, 4> waited, signalled;
  for (int role = 0; role < 4; ++role) {
    waited[role].assign(edges.size(), 0);
    signalled[role].assign(edges.size(), 0);
    for (int id : ofRole[sm][role]) {
      const Node &node = nodes[id];
      if (isa<WaitOp, AcquireOp>(node.op))
        ++waited[role][node.edge];
      for (auto [access, isWrite] : accessesOf(node.op)) {
        auto it = index.find(access.getBuffer().getAttr());
        if (it == index.end())
          continue;
        Shared &buffer = buffers[it->second];
        Access touched{id, isWrite, areaOf(access, node.dims), 0, 0};
        if (touched.area.empty())
          continue;
        if (touched.area.row < 0 || touched.area.col < 0 ||
            touched.area.rowEnd > buffer.op.rows() || touched.area.colEnd > buffer.op.cols())
          return fail("outside @" + buffer.op.getSymName(), id);
        if (auto guard = buffer.op.getGuardAttr()) {
          const int edge = edgeIndex.lookup(guard.getAttr());
          const bool isSource = static_cast<int>(edges[edge].getFrom()) == role;
          const bool isReader = llvm::any_of(
              edges[edge].getTo().getAsRange<RoleAttr>(),
              [&, role = role](RoleAttr to) { return static_cast<int>(to.getValue()) == role; });
          if (!isSource && !isReader)
            return fail("the guard does not join this role", id);
          touched.filling = isReader ? waited[role][edge] - 1 : signalled[role][edge];
          if (touched.filling < 0)
            return fail("before any wait for the guard", id);
          touched.slot = touched.filling % buffer.op.getSlots();
          if (!namesSlot(id, touched, buffer.op, waited[role]))
            return fail("@" + buffer.op.getSymName() + " in another slot than is numbered", id);
        } else {
          int64_t refills = 0;
          for (int refill : buffer.refills)
            refills += isBefore(refill, id);
          touched.filling = refills ? refills : node.launch - (int64_t(1) << 32);
        }
        if (auto poll = dyn_cast<PollOp>(node.op); poll && isWrite && poll.getJoinsAttr()) {
          touched.copyEdge = edgeIndex.lookup(poll.getJoinsAttr().getAttr());
          touched.copyUse = signalled[role][touched.copyEdge];
        }
        buffer.accesses.push_back(touched);
      }
      if (isa<SignalOp, ReleaseOp, CopyOp>(node.op))
        ++signalled[role][node.edge];
    }
  }

  // By step of the consumers: how many of their steps all their warps are known to have come
  // through, because they met or another role heard from each of them and said so.
  const std::vector<int> &consumer = ofRole[sm][static_cast<int>(Role::Consumer)];
  llvm::DenseMap<int, size_t> place, met;
  for (size_t i = 0, known = 0; i < consumer.size(); ++i) {
    const Node &node = nodes[consumer[i]];
    for (int other : node.before)
      if (nodes[other].role != node.role)
        known = std::max<size_t>(known, llvm::partition_point(consumer, [&](int step) {
                                          return isBefore(step, other);
                                        }) - consumer.begin());
    if (isa<RefillOp>(node.op) || node.op->hasAttr("meets"))
      known = i;
    place[consumer[i]] = i;
    met[consumer[i]] = known;
  }
  auto haveMet = [&](int a, int b) {
    if (!place.contains(a) || !place.contains(b))
      return true;
    const auto [first, second] = place[a] < place[b] ? std::pair(a, b) : std::pair(b, a);
    return place[first] < met[second];
  };

  for (const Shared &buffer : buffers) {
    const std::string name = ("@" + BufferOp(buffer.op).getSymName()).str();
    std::vector<const Shared *> neighbours;
    for (const Shared &other : buffers)
      if (&other != &buffer && buffer.overlaps(other))
        neighbours.push_back(&other);
    for (size_t i = 0; i < buffer.accesses.size(); ++i)
      for (size_t j = 0; j < i; ++j) {
        const Access &a = buffer.accesses[i], &b = buffer.accesses[j];
        if (a.node != b.node && a.slot == b.slot && (a.isWrite || b.isWrite) &&
            a.area.meets(b.area) && !checkPair(a, b, name))
          return false;
      }
    for (const Shared *other : neighbours)
      for (const Access &a : buffer.accesses)
        for (const Access &b : other->accesses)
          if ((a.isWrite || b.isWrite) && a.node != b.node) {
            if (!checkPair(a, b, name))
              return false;
            if (!haveMet(a.node, b.node))
              return fail("warps may still be at what lay where " + name + " does", a.node);
          }
    for (const Access &read : buffer.accesses) {
      auto isSame = [&](const Access &write) {
        return write.isWrite && write.filling == read.filling && isBefore(write.node, read.node);
      };
      if (read.isWrite) {
        // Warps fill their shares anew only after they met.
        const bool isInPlace = llvm::any_of(buffer.accesses, [&](const Access &other) {
          return other.node == read.node && !other.isWrite;
        });
        if (read.filling > 0 && !buffer.op->hasAttr("guard") && !isInPlace)
          for (const Access &write : buffer.accesses)
            if (isSame(write) && write.node != read.node && write.area.meets(read.area))
              return fail("fills " + name + " again without a refill", read.node);
        continue;
      }
      auto isAnew = [&](const Access &write) {
        return llvm::none_of(buffer.accesses, [&](const Access &other) {
          return other.node == write.node && !other.isWrite;
        });
      };
      const Access *source = nullptr;
      for (const Access &write : buffer.accesses)
        if (isSame(write) && write.node != read.node && write.area.meets(read.area) &&
            isAnew(write) && (!source || isBefore(source->node, write.node)))
          source = &write;
      const Node &reader = nodes[read.node];
      if (source &&
          llvm::all_of(ArrayRef(reader.dims).drop_front(), [](int64_t i) { return i == 0; })) {
        const size_t place = &buffer - buffers.data();
        auto [it, isNew] =
            sources.try_emplace({reader.op, reader.launch, place}, nodes[source->node].op);
        if (!isNew && it->second != nodes[source->node].op)
          return fail("another step fills " + name + " than on another SM", read.node);
      }
      std::vector<Area> written;
      for (const Access &write : buffer.accesses) {
        if (!isSame(write) || write.node == read.node)
          continue;
        const bool isGone = llvm::any_of(neighbours, [&](const Shared *other) {
          return llvm::any_of(other->accesses, [&](const Access &over) {
            return over.isWrite && isBefore(write.node, over.node) &&
                   isBefore(over.node, read.node);
          });
        });
        if (!isGone)
          written.push_back(write.area);
      }
      if (!isCovered(read.area, written))
        return fail("reads of " + name + " what this filling did not write", read.node);
    }
  }
  return true;
}

bool EventGraph::checkRing(int64_t sm) {
  for (auto ring : kernel.getOps<RingOp>()) {
    const int full = edgeIndex.lookup(ring.getFullAttr().getAttr());
    std::map<int64_t, std::vector<Access>> slots;
    std::vector<bool> isRead(uses[sm][full].signals.size());
    for (int role = 0; role < 4; ++role) {
      int64_t waited = 0;
      for (int id : ofRole[sm][role]) {
        const Node &node = nodes[id];
        waited += isa<WaitOp>(node.op) && node.edge == full;
        auto compute = dyn_cast<ComputeOp>(node.op);
        if (compute && compute.getRingAttr()) {
          if (waited == 0)
            return fail("reads the ring before any piece", id);
          isRead[waited - 1] = true;
          slots[(waited - 1) % ring.getSlots()].push_back({id, false, {0, 1, 0, 1}, 0, 0});
        }
        if (isa<CopyOp>(node.op) && node.edge == full)
          slots[node.use % ring.getSlots()].push_back(
              {id, true, {0, 1, 0, 1}, 0, 0, full, node.use});
      }
    }
    if (!llvm::all_of(isRead, [](bool is) { return is; }))
      return fail("a streamed piece is not read");
    for (auto &[slot, list] : slots)
      for (size_t i = 0; i < list.size(); ++i)
        for (size_t j = 0; j < i; ++j)
          if ((list[i].isWrite || list[j].isWrite) && !checkPair(list[i], list[j], "the ring"))
            return false;
  }
  return true;
}
