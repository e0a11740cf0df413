// Shared memory and the ring in the event graph of an SM.
#include "tests/mutation/EventGraph.h"

#include "llvm/ADT/DenseSet.h"

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

const std::vector<int> &EventGraph::numbersOf(Operation *call) {
  auto [it, isNew] = numbers.try_emplace(call);
  auto args = call->getAttrOfType<ArrayAttr>("args");
  if (!isNew || !args)
    return it->second;
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
  for (Operation *at = call; !isa<RoleOp>(at); at = at->getParentOp())
    for (Operation *op = at->getPrevNode(); op; op = op->getPrevNode()) {
      if (auto local = dyn_cast<LocalOp>(op)) {
        if (open.erase(local.getName().str()))
          addWords(local.getInit().value_or(""));
        continue;
      }
      auto result = op->getAttrOfType<StringAttr>("result");
      if (!result || !open.erase(result.getValue().substr(result.getValue().rfind(' ') + 1).str()))
        continue;
      if (isa<WaitOp, AcquireOp>(op))
        it->second.push_back(
            edgeIndex.lookup(op->getAttrOfType<FlatSymbolRefAttr>("edge").getAttr()));
    }
  return it->second;
}

bool EventGraph::namesSlot(Operation *call, int64_t slot, int64_t slots, ArrayRef<int64_t> waited) {
  if (slots == 1)
    return true;
  const std::vector<int> &given = numbersOf(call);
  return given.empty() || llvm::any_of(given, [&](int edge) {
           const int64_t use = waited[edge] - 1;
           return edges[edge].slots == slots && use >= 0 && use % slots == slot;
         });
}

// A role's accesses are in its order: `a` comes after all that are before it, and before all that
// follow one which it is before. So only those between are looked at.
bool EventGraph::checkOrders(const Access &a, const Accesses &of,
                             llvm::function_ref<bool(const Access &)> conflict, StringRef what) {
  for (int role = 0; role < 4; ++role) {
    const ArrayRef<Access> line = of.writes[role];
    const auto *b = llvm::partition_point(
        line, [&](const Access &b) { return inRole[b.node].index < over[a.node][role]; });
    for (; b != line.end() && !isBefore(a.node, b->node); ++b)
      if (conflict(*b))
        return fail("no order between two accesses of " + what, a.node);
    for (const Access &b : a.copyEdge >= 0 ? line : ArrayRef<Access>())
      if (a.node != b.node && conflict(b) && !checkPair(a, b, what))
        return false;
  }
  for (const Access &b : of.copies)
    if (a.node != b.node && conflict(b) && !checkPair(a, b, what))
      return false;
  return true;
}

// That warps met between an access and the writes of another buffer over the same bytes: with the
// last before it and with the first after it, since the later a step the more met before it.
bool EventGraph::haveMet(const Access &a, const Accesses &of, ArrayRef<int> met) const {
  constexpr int kConsumer = static_cast<int>(Role::Consumer);
  const InRole here = inRole[a.node];
  if (here.role != kConsumer)
    return true;
  const ArrayRef<Access> line = of.writes[kConsumer];
  const auto *at = llvm::partition_point(
      line, [&](const Access &b) { return inRole[b.node].index < here.index; });
  if (at != line.begin() && inRole[std::prev(at)->node].index >= met[here.index])
    return false;
  while (at != line.end() && at->node == a.node)
    ++at;
  return at == line.end() || here.index < met[inRole[at->node].index];
}

bool EventGraph::checkMemory(int64_t sm) {
  struct Shared : Accesses {
    BufferOp op;
    std::string name;
    int64_t begin, end; ///< bytes, none without a place
    int64_t rows, cols, slots;
    int guard; ///< edge
    std::vector<int> refills;
    bool overlaps(const Shared &other) const { return begin < other.end && other.begin < end; }
  };
  std::vector<Shared> buffers;
  llvm::DenseMap<Operation *, int> index;
  for (auto buffer : kernel.getOps<BufferOp>())
    if (buffer.getSpace() == Space::Smem) {
      index[buffer] = buffers.size();
      const int64_t begin = buffer.getOffset().value_or(0);
      const FlatSymbolRefAttr guard = buffer.getGuardAttr();
      buffers.push_back({Accesses(),
                         buffer,
                         ("@" + buffer.getSymName()).str(),
                         begin,
                         begin + (buffer.getOffset() ? buffer.byteSize() : 0),
                         buffer.rows(),
                         buffer.cols(),
                         buffer.getSlots(),
                         guard ? edgeIndex.lookup(guard.getAttr()) : -1,
                         {}});
    }
  for (int id : ofSm[sm])
    if (auto refill = dyn_cast<RefillOp>(nodes[id].op))
      buffers[index.lookup(decls.lookup(refill.getBufferAttr().getAttr()))].refills.push_back(id);

  // Uses of edges so far, by role: which filling an access means.
  std::array<std::vector<int64_t>, 4> waited, signalled;
  for (int role = 0; role < 4; ++role) {
    waited[role].assign(edges.size(), 0);
    signalled[role].assign(edges.size(), 0);
    for (int id : ofRole[sm][role]) {
      const Node &node = nodes[id];
      if (isa<WaitOp, AcquireOp>(node.op))
        ++waited[role][node.edge];
      for (const Touch &touch : touchesOf(node.op)) {
        auto it = index.find(touch.decl);
        if (it == index.end())
          continue;
        Shared &buffer = buffers[it->second];
        Access touched{id, touch.isWrite, areaOf(touch.access, node.dims), 0, 0};
        if (touched.area.empty())
          continue;
        if (touched.area.row < 0 || touched.area.col < 0 || touched.area.rowEnd > buffer.rows ||
            touched.area.colEnd > buffer.cols)
          return fail("outside " + buffer.name, id);
        if (const int edge = buffer.guard; edge >= 0) {
          const bool isReader = edges[edge].waits(role);
          if (edges[edge].from != role && !isReader)
            return fail("the guard does not join this role", id);
          touched.filling = isReader ? waited[role][edge] - 1 : signalled[role][edge];
          if (touched.filling < 0)
            return fail("before any wait for the guard", id);
          touched.slot = touched.filling % buffer.slots;
          if (!namesSlot(node.op, touched.slot, buffer.slots, waited[role]))
            return fail(buffer.name + " in another slot than is numbered", id);
        } else {
          int64_t refills = 0;
          for (int refill : buffer.refills)
            refills += isBefore(refill, id);
          touched.filling = node.launch + refills;
          touched.isRefilled = refills > 0;
        }
        if (auto poll = dyn_cast<PollOp>(node.op); poll && touch.isWrite && poll.getJoinsAttr()) {
          touched.copyEdge = edgeIndex.lookup(poll.getJoinsAttr().getAttr());
          touched.copyUse = signalled[role][touched.copyEdge];
        }
        buffer.all.push_back(touched);
        if (touch.isWrite)
          buffer.writes[role].push_back(touched);
        if (touched.copyEdge >= 0)
          buffer.copies.push_back(touched);
      }
      if (isa<SignalOp, ReleaseOp, CopyOp>(node.op))
        ++signalled[role][node.edge];
    }
  }

  // By step of the consumers: how many of their steps all their warps are known to have come
  // through, because they met or another role heard from each of them and said so.
  constexpr int kConsumer = static_cast<int>(Role::Consumer);
  const std::vector<int> &consumer = ofRole[sm][kConsumer];
  std::vector<int> met;
  for (int i = 0, known = 0; i < static_cast<int>(consumer.size()); ++i) {
    const Node &node = nodes[consumer[i]];
    for (int other : node.before)
      if (nodes[other].role != node.role)
        known = std::max(known, over[other][kConsumer]);
    auto compute = dyn_cast<ComputeOp>(node.op);
    if (isa<RefillOp>(node.op) || (compute && compute.getMeets() == Meeting::Always))
      known = i;
    met.push_back(known);
  }
  for (Shared &buffer : buffers) {
    std::vector<const Shared *> neighbours;
    for (const Shared &other : buffers)
      if (&other != &buffer && buffer.overlaps(other))
        neighbours.push_back(&other);
    const std::string &name = buffer.name;
    for (const Access &a : buffer.all) {
      auto meets = [&](const Access &b) { return a.slot == b.slot && a.area.meets(b.area); };
      if (!checkOrders(a, buffer, meets, name))
        return false;
      for (const Shared *other : neighbours) {
        if (!checkOrders(
                a, *other, [](const Access &) { return true; }, name))
          return false;
        if (!haveMet(a, *other, met))
          return fail("warps may still be at what lay where " + name + " does", a.node);
      }
    }

    // Steps that read what they write work in place. Writes, by filling; one is gone for those who
    // come after a neighbour's write that comes after it.
    llvm::DenseSet<int> readers;
    for (const Access &access : buffer.all)
      if (!access.isWrite)
        readers.insert(access.node);
    struct Write {
      const Access *access;
      bool isAnew;
      std::vector<std::array<size_t, 4>> under; ///< by neighbour and role, its first write after it
    };
    std::map<int64_t, std::vector<Write>> fillings;
    for (const Access &access : buffer.all) {
      if (!access.isWrite)
        continue;
      Write write{&access, !readers.contains(access.node), {}};
      for (const Shared *other : neighbours) {
        auto &first = write.under.emplace_back();
        for (int role = 0; role < 4; ++role)
          first[role] = llvm::partition_point(other->writes[role],
                                              [&](const Access &later) {
                                                return !isBefore(access.node, later.node);
                                              }) -
                        other->writes[role].begin();
      }
      fillings[access.filling].push_back(std::move(write));
    }
    for (const Access &read : buffer.all) {
      const std::vector<Write> &writes = fillings[read.filling];
      auto comesBefore = [&](const Write &write) {
        return write.access->node != read.node && isBefore(write.access->node, read.node);
      };
      if (read.isWrite) {
        // Warps fill their shares anew only after they met.
        if (read.isRefilled && !readers.contains(read.node))
          for (const Write &write : writes)
            if (write.access->area.meets(read.area) && comesBefore(write))
              return fail("fills " + name + " again without a refill", read.node);
        continue;
      }
      std::vector<std::array<size_t, 4>> laid; // by neighbour and role: its writes before it
      for (const Shared *other : neighbours) {
        auto &count = laid.emplace_back();
        for (int role = 0; role < 4; ++role)
          count[role] = llvm::partition_point(
                            other->writes[role],
                            [&](const Access &write) { return isBefore(write.node, read.node); }) -
                        other->writes[role].begin();
      }
      auto isGone = [&](const Write &write) {
        for (size_t i = 0; i < laid.size(); ++i)
          for (int role = 0; role < 4; ++role)
            if (write.under[i][role] < laid[i][role])
              return true;
        return false;
      };
      const Access *source = nullptr;
      std::vector<Area> written;
      for (const Write &write : writes) {
        if (!write.access->area.meets(read.area) || !comesBefore(write))
          continue;
        if (write.isAnew && (!source || isBefore(source->node, write.access->node)))
          source = write.access;
        if (!isGone(write))
          written.push_back(write.access->area);
      }
      const Node &reader = nodes[read.node];
      if (source &&
          llvm::all_of(ArrayRef(reader.dims).drop_front(), [](int64_t i) { return i == 0; })) {
        const size_t place = &buffer - buffers.data();
        auto [it, isNew] =
            sources.try_emplace({reader.op, reader.launch, place}, nodes[source->node].op);
        if (!isNew && it->second != nodes[source->node].op)
          return fail("another step fills " + name + " than on another SM", read.node);
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
    const int64_t count = ring.getSlots();
    std::map<int64_t, Accesses> slots;
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
          slots[(waited - 1) % count].all.push_back({id, false, {0, 1, 0, 1}, 0, 0});
        }
        if (isa<CopyOp>(node.op) && node.edge == full)
          slots[node.use % count].copies.push_back({id, true, {0, 1, 0, 1}, 0, 0, full, node.use});
      }
    }
    if (!llvm::all_of(isRead, [](bool is) { return is; }))
      return fail("a streamed piece is not read");
    // Whoever knows that a piece has landed knows it of those before, so each read and each copy is
    // looked at with the copies on either side of it.
    for (auto &[slot, list] : slots) {
      const std::vector<Access> &copies = list.copies;
      for (size_t i = 1; i < copies.size(); ++i)
        if (inRole[copies[i].node].role != inRole[copies[0].node].role)
          return fail("pieces of the ring are copied by two roles", copies[i].node);
        else if (!checkPair(copies[i - 1], copies[i], "the ring"))
          return false;
      for (const Access &read : list.all) {
        auto after = llvm::partition_point(
            copies, [&](const Access &copy) { return isBefore(copy.node, read.node); });
        if ((after != copies.begin() && !checkPair(*std::prev(after), read, "the ring")) ||
            (after != copies.end() && !checkPair(*after, read, "the ring")))
          return false;
      }
    }
  }
  return true;
}
