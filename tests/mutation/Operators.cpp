#include "tests/mutation/Operators.h"

#include "passes/verify/Declared.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace megalith;
using namespace megalith::task;
using namespace megalith::mutation;

namespace {

AccessAttr with(AccessAttr access, AffineMap at, int64_t rows, AffineMap cols,
                FlatSymbolRefAttr table, task::Set set) {
  return AccessAttr::get(access.getContext(), access.getBuffer(), AffineMapAttr::get(at), rows,
                         AffineMapAttr::get(cols), table, set);
}

/// The map with `delta` added to result `index`.
AffineMap moved(AffineMap map, unsigned index, int64_t delta) {
  SmallVector<AffineExpr> results(map.getResults());
  results[index] = results[index] + delta;
  return AffineMap::get(map.getNumDims(), map.getNumSymbols(), results, map.getContext());
}

AffineMap movedAll(AffineMap map, int64_t delta) {
  for (unsigned i = 0; i < map.getNumResults(); ++i)
    map = moved(map, i, delta);
  return map;
}

void add(Operation *op, StringRef name, int64_t delta) {
  auto old = op->getAttrOfType<IntegerAttr>(name);
  op->setAttr(name, IntegerAttr::get(old.getType(), old.getInt() + delta));
}

void set(Operation *op, StringRef name, int64_t value) {
  op->setAttr(name, Builder(op->getContext()).getI64IntegerAttr(value));
}

KernelOp kernelOf(Operation *op) {
  return op->getParentOfType<KernelOp>();
}

bool isStep(Operation *op) {
  return isa<RoleOp, ForOp>(op->getParentOp()) && !isa<LocalOp>(op);
}

/// The next op that is a step or loop; variables stand where they stand.
Operation *nextStep(Operation *op) {
  do
    op = op->getNextNode();
  while (op && isa<LocalOp>(op));
  return op;
}

/// The next op of the same block that computes.
Operation *nextCall(Operation *op) {
  do
    op = op->getNextNode();
  while (op && !isa<ComputeOp>(op));
  return op;
}

class Collector {
public:
  explicit Collector(ModuleOp plan) : plan(plan) {}

  std::vector<Mutation> run() {
    size_t index = 0;
    plan.walk<WalkOrder::PreOrder>([&](Operation *op) {
      at = index++;
      current = op;
      visit(op);
    });
    return std::move(mutations);
  }

private:
  void push(const Twine &name, const Twine &detail, std::function<void(Operation *)> apply,
            bool isFootprint = false) {
    std::string site;
    llvm::raw_string_ostream out(site);
    if (KernelOp kernel = current == plan ? KernelOp() : kernelOf(current)) {
      out << '@' << kernel.getSymName();
      if (auto stage = current->getParentOfType<StageOp>())
        out << " @" << stage.getSymName();
      if (auto role = current->getParentOfType<RoleOp>())
        out << ' ' << stringifyRole(role.getRole());
      out << ": ";
      if (current->getNumRegions() == 0)
        // Else the whole plan would be verified and numbered each time.
        current->print(out, OpPrintingFlags().useLocalScope().assumeVerified());
      else if (auto loop = dyn_cast<ForOp>(current))
        out << "for " << loop.getIndex();
      else if (auto named = dyn_cast<SymbolOpInterface>(current))
        out << '@' << named.getName();
    }
    if (!detail.isTriviallyEmpty())
      out << "  [" << detail << ']';
    mutations.push_back({name.str(), site, at, std::move(apply), isFootprint});
  }

  void visit(Operation *op) {
    if (auto module = dyn_cast<ModuleOp>(op))
      return launches(module);
    if (isa<KernelOp, RoleOp, WeightsOp, LocalOp>(op))
      return;
    if (isStep(op))
      step(op);
    llvm::TypeSwitch<Operation *>(op)
        .Case([&](EdgeOp op) { edge(op); })
        .Case([&](RingOp op) { ring(op); })
        .Case([&](BufferOp op) { buffer(op); })
        .Case([&](ExchangeOp op) { exchange(op); })
        .Case([&](SymbolOp op) { symbol(op); })
        .Case([&](TableOp op) { table(op); })
        .Case([&](StageOp op) { stage(op); })
        .Case([&](ForOp op) { loop(op); });
  }

  // Plan: the order of launches.
  void launches(ModuleOp module) {
    auto names = module->getAttrOfType<ArrayAttr>(kLaunchesAttr);
    // A looping kernel's launches are all the same.
    if (!names || llvm::all_equal(names))
      return;
    auto change = [&](const Twine &name, size_t i, auto edit) {
      push(name, "launch " + Twine(i) + " " + cast<FlatSymbolRefAttr>(names[i]).getValue(),
           [=](Operation *op) {
             SmallVector<Attribute> list(op->getAttrOfType<ArrayAttr>(kLaunchesAttr).getValue());
             edit(list);
             op->setAttr(kLaunchesAttr, ArrayAttr::get(op->getContext(), list));
           });
    };
    using List = SmallVector<Attribute>;
    for (size_t i = 0; i < names.size(); ++i) {
      // A model of one layer more or less is a model too.
      auto kernel = dyn_cast_or_null<KernelOp>(
          SymbolTable::lookupSymbolIn(module, cast<FlatSymbolRefAttr>(names[i])));
      if (kernel && kernel.getKind() == "layer")
        continue;
      change("drop launch", i, [=](List &list) { list.erase(list.begin() + i); });
      change("double launch", i, [=](List &list) { list.insert(list.begin() + i, list[i]); });
      if (i + 1 < names.size() && names[i] != names[i + 1])
        change("reorder launch", i, [=](List &list) { std::swap(list[i], list[i + 1]); });
    }
  }

  void step(Operation *op) {
    const std::string kind = op->getName().stripDialect().str();
    auto compute = dyn_cast<ComputeOp>(op);
    // What later steps name must stay: without it there is no C++.
    const bool isFixed = compute && compute.getResult();
    if (!isFixed && !isa<ForOp>(op)) {
      push("drop " + kind, "", [](Operation *op) { op->erase(); });
      if (!op->hasAttr("result"))
        push("double " + kind, "", [](Operation *op) { OpBuilder(op).clone(*op); });
    }
    reorder(op);
    if (auto it = op->getAttrOfType<FlatSymbolRefAttr>("edge"))
      otherEdge(op, it);
    if (auto wait = dyn_cast<WaitOp>(op); wait && !wait.getResult())
      push("weaken wait", "peek", [](Operation *op) {
        OpBuilder builder(op);
        PeekOp::create(builder, op->getLoc(), cast<WaitOp>(op).getEdgeAttr());
        op->erase();
      });
    if (isa<PeekOp>(op))
      push("double peek", "as a wait", [](Operation *op) {
        OpBuilder builder(op);
        WaitOp::create(builder, op->getLoc(), cast<PeekOp>(op).getEdgeAttr(), StringAttr());
        op->erase();
      });
    if (auto pace = dyn_cast<PaceOp>(op))
      for (int64_t delta : {-1, 1})
        push("miscount window", Twine(delta), [=](Operation *op) { add(op, "window", delta); });
    if (auto rearm = dyn_cast<RearmOp>(op))
      for (auto other : kernelOf(op).getOps<ExchangeOp>())
        if (other.getWord() == WordKind::Sentinel && other.getSymName() != rearm.getExchange()) {
          auto name = FlatSymbolRefAttr::get(other.getSymNameAttr());
          push("wrong sentinel", "re-arms @" + name.getValue(),
               [=](Operation *op) { cast<RearmOp>(op).setExchangeAttr(name); });
          break;
        }
    if (auto poll = dyn_cast<PollOp>(op)) {
      if (FlatSymbolRefAttr also = poll.getAlsoAttr())
        push("weaken poll", "without " + also.getValue(), [=](Operation *op) {
          auto poll = cast<PollOp>(op);
          auto isKept = [&](Attribute read) {
            auto exchange = kernelOf(op).lookup<ExchangeOp>(cast<AccessAttr>(read).getBuffer());
            return !exchange || exchange.getEdgeAttr() != also;
          };
          poll.setReadsAttr(ArrayAttr::get(
              op->getContext(), llvm::filter_to_vector(poll.getReads().getValue(), isKept)));
          poll.removeAlsoAttr();
        });
      accesses(op, "reads", "read");
      accesses(op, "writes", "write");
    } else if (compute) {
      if (compute.getMeets())
        push(
            "drop meeting", "", [](Operation *op) { cast<ComputeOp>(op).removeMeetsAttr(); },
            /*isFootprint=*/true);
      const Meeting other =
          compute.getMeets() == Meeting::Always ? Meeting::Writing : Meeting::Always;
      push("wrong meeting", stringifyMeeting(other),
           [=](Operation *op) { cast<ComputeOp>(op).setMeets(other); });
      accesses(op, "reads", "read");
      accesses(op, "writes", "write");
    } else if (auto copy = dyn_cast<CopyOp>(op)) {
      eachChange("copy", copy.getSource(), [&](StringRef name, const Twine &detail, AccessAttr to) {
        push(
            name, detail, [=](Operation *op) { cast<CopyOp>(op).setSourceAttr(to); },
            /*isFootprint=*/true);
      });
    }
  }

  void reorder(Operation *op) {
    auto canMove = [](Operation *op) { return !op->hasAttr("result"); };
    if (Operation *next = nextStep(op); next && (canMove(op) && canMove(next)))
      push("reorder", "behind " + next->getName().stripDialect(),
           [](Operation *op) { op->moveAfter(nextStep(op)); });
    if (isa<ForOp>(op) && nextCall(op) && nextCall(op) != nextStep(op))
      push("reorder", "behind the next call", [](Operation *op) { op->moveAfter(nextCall(op)); });
    auto loop = dyn_cast<ForOp>(op->getParentOp());
    if (!loop || !canMove(op) || isa<ForOp>(op))
      return;
    // Accesses may name the loop's index.
    if (isa<ComputeOp, PollOp, CopyOp>(op))
      return;
    Block &body = loop.getBody().front();
    if (op == &body.front())
      push("reorder", "ahead of its loop",
           [](Operation *op) { op->moveBefore(op->getParentOp()); });
    if (op == &body.back())
      push("reorder", "behind its loop", [](Operation *op) { op->moveAfter(op->getParentOp()); });
  }

  // The next edge, by number, of the same kind.
  void otherEdge(Operation *op, FlatSymbolRefAttr name) {
    auto edge = kernelOf(op).lookup<EdgeOp>(name);
    SmallVector<EdgeOp> same;
    for (EdgeOp other : kernelOf(op).edges())
      if (other.getKind() == edge.getKind())
        same.push_back(other);
    if (same.size() < 2)
      return;
    EdgeOp other = same[(llvm::find(same, edge) - same.begin() + 1) % same.size()];
    auto to = FlatSymbolRefAttr::get(other.getSymNameAttr());
    push("wrong edge", "@" + to.getValue(), [=](Operation *op) { op->setAttr("edge", to); });
  }

  template <typename Use> void eachChange(StringRef what, AccessAttr access, Use use) {
    auto task = [&](StringRef verb) { return (verb + " " + what).str(); };
    AffineMap at = access.getAt().getValue(), cols = access.getCols().getValue();
    const int64_t rows = access.getRows();
    auto table = access.getTable();
    const task::Set set = access.getSet();
    const unsigned row = at.getNumResults() - 2, col = row + 1;
    const std::string name = (Twine("@") + access.getBuffer().getValue()).str();
    if (rows > 1)
      use(task("shrink"), name + " rows", with(access, at, rows - 1, cols, table, set));
    use(task("shrink"), name + " columns", with(access, at, rows, movedAll(cols, -1), table, set));
    use(task("shift"), name + " row", with(access, moved(at, row, 1), rows, cols, table, set));
    use(task("shift"), name + " column", with(access, moved(at, col, 1), rows, cols, table, set));
    if (table) {
      use(task("shift"), name + " argument", with(access, moved(at, 0, 1), rows, cols, table, set));
      use(task("wrong table of"), name,
          with(access, at.getMinorSubMap(2), rows, cols, FlatSymbolRefAttr(), set));
    }
    if (kernelOf(current).lookup<ExchangeOp>(access.getBuffer()))
      use(task("wrong set of"), name,
          with(access, at, rows, cols, table,
               set == task::Set::Current ? task::Set::Previous : task::Set::Current));
  }

  void accesses(Operation *op, StringRef attr, StringRef what) {
    auto list = op->getAttrOfType<ArrayAttr>(attr);
    const std::string key = attr.str();
    for (size_t i = 0; i < list.size(); ++i) {
      auto access = cast<AccessAttr>(list[i]);
      push(
          "drop " + what, Twine("@") + access.getBuffer().getValue(),
          [=](Operation *op) {
            SmallVector<Attribute> list(op->getAttrOfType<ArrayAttr>(key).getValue());
            list.erase(list.begin() + i);
            op->setAttr(key, ArrayAttr::get(op->getContext(), list));
          },
          /*isFootprint=*/true);
      eachChange(what, access, [&](StringRef name, const Twine &detail, AccessAttr to) {
        push(
            name, detail,
            [=](Operation *op) {
              SmallVector<Attribute> list(op->getAttrOfType<ArrayAttr>(key).getValue());
              list[i] = to;
              op->setAttr(key, ArrayAttr::get(op->getContext(), list));
            },
            /*isFootprint=*/true);
      });
    }
  }

  void loop(ForOp op) {
    for (int64_t delta : {-1, 1})
      push("miscount trips", Twine(delta), [=](Operation *op) {
        auto loop = cast<ForOp>(op);
        AffineMap map;
        if (FlatSymbolRefAttr symbol = loop.getTrips().getSymbol())
          map = AffineMap::getConstantMap(kernelOf(op).lookup<SymbolOp>(symbol).getMax() + delta,
                                          op->getContext());
        else
          map = movedAll(loop.getTrips().getMap().getValue(), delta);
        loop.setTripsAttr(TripsAttr::get(op->getContext(), AffineMapAttr::get(map), {}));
      });
    auto symbol = op.getTrips().getSymbol();
    for (auto other : kernelOf(op).getOps<SymbolOp>())
      if (auto name = FlatSymbolRefAttr::get(other.getSymNameAttr()); symbol && name != symbol)
        push("wrong symbol", "@" + name.getValue(), [=](Operation *op) {
          cast<ForOp>(op).setTripsAttr(TripsAttr::get(op->getContext(), {}, name));
        });
  }

  // A kernel by hand declares what it likes.
  bool isToy(Operation *op) { return kernelOf(op).getKind() == verify::kToy; }

  void symbol(SymbolOp op) {
    if (isToy(op))
      return;
    if (op.getMin() < op.getMax()) {
      push("narrow symbol", "max -1", [](Operation *op) { add(op, "max", -1); });
      push("narrow symbol", "to its largest",
           [max = op.getMax()](Operation *op) { set(op, "min", max); });
      push("narrow symbol", "to its least",
           [min = op.getMin()](Operation *op) { set(op, "max", min); });
    }
    if (op.getAfter())
      push("drop after", "", [](Operation *op) { op->removeAttr("after"); });
    if (op.getPerSm())
      push("drop per_sm", "", [](Operation *op) { op->removeAttr("per_sm"); });
  }

  void table(TableOp op) {
    if (isToy(op))
      return;
    push("shrink table", "-1", [](Operation *op) { add(op, "size", -1); });
    for (Axiom axiom : {Axiom::Uniform, Axiom::Partition, Axiom::Injective})
      if (axiom != op.getAxiom())
        push("wrong axiom", stringifyAxiom(axiom),
             [=](Operation *op) { cast<TableOp>(op).setAxiom(axiom); });
  }

  void stage(StageOp op) {
    // A window's pieces do not grow with the sequence.
    if (auto positions = op.getConfig().getAs<IntegerAttr>("max_positions");
        positions && !op.getConfig().get("window"))
      push("raise positions", "x 1024", [](Operation *op) {
        auto stage = cast<StageOp>(op);
        NamedAttrList config(stage.getConfig());
        auto old = cast<IntegerAttr>(config.get("max_positions"));
        config.set("max_positions", IntegerAttr::get(old.getType(), 1024 * old.getInt()));
        stage.setConfigAttr(config.getDictionary(op->getContext()));
      });
    const int64_t sms = op.getSms().value_or(kernelOf(op).getSms());
    for (int64_t delta : {-1, 1})
      push("miscount SMs", Twine(delta), [=](Operation *op) { set(op, "sms", sms + delta); });
    if (auto during = op.getDuring())
      for (int end : {0, 1})
        for (int64_t delta : {-1, 1})
          push("shift launches", Twine(end ? "end " : "first ") + Twine(delta), [=](Operation *op) {
            auto stage = cast<StageOp>(op);
            SmallVector<int64_t> range(*stage.getDuring());
            range[end] += delta;
            stage.setDuring(ArrayRef<int64_t>(range));
          });
    push("drop launches", "during", [](Operation *op) { op->removeAttr("during"); });
    if (!op.getDuring())
      mutations.pop_back();
  }

  void edge(EdgeOp op) {
    if (!op.isGlobal()) {
      for (int64_t delta : {-1, 1}) {
        push("miscount arrivals", Twine(delta), [=](Operation *op) { add(op, "arrivals", delta); });
        push(delta < 0 ? "miscount slots" : "early reuse", "slots " + Twine(delta),
             [=](Operation *op) { add(op, "slots", delta); });
      }
      if (op.getOffset())
        push("shift barrier", "-8", [](Operation *op) { add(op, "offset", -8); });
    }
    for (EdgeKind kind : {EdgeKind::Mbarrier, EdgeKind::Bytes, EdgeKind::Credit, EdgeKind::Words,
                          EdgeKind::Launch, EdgeKind::Launches})
      if (kind != op.getKind()) {
        const bool isGlobal =
            kind == EdgeKind::Words || kind == EdgeKind::Launch || kind == EdgeKind::Launches;
        push(isGlobal == op.isGlobal() ? "weaken kind" : "wrong scope", stringifyEdgeKind(kind),
             [=](Operation *op) { cast<EdgeOp>(op).setKind(kind); });
      }
    for (size_t i = 0; i < op.getTo().size() && op.getTo().size() > 1; ++i)
      push("weaken roles", stringifyRole(cast<RoleAttr>(op.getTo()[i]).getValue()),
           [=](Operation *op) {
             SmallVector<Attribute> to(cast<EdgeOp>(op).getTo().getValue());
             to.erase(to.begin() + i);
             cast<EdgeOp>(op).setToAttr(ArrayAttr::get(op->getContext(), to));
           });
    for (Role role : {Role::Producer, Role::Poller, Role::Consumer, Role::Epilogue})
      if (role != op.getFrom())
        push("wrong role", stringifyRole(role),
             [=](Operation *op) { cast<EdgeOp>(op).setFrom(role); });
  }

  // Its edges have as many slots.
  void ring(RingOp op) {
    for (int64_t delta : {-1, 1}) {
      push(delta < 0 ? "early reuse" : "miscount slots", "ring alone " + Twine(delta),
           [=](Operation *op) { add(op, "slots", delta); });
      push("miscount slots", "ring and edges " + Twine(delta), [=](Operation *op) {
        auto ring = cast<RingOp>(op);
        for (FlatSymbolRefAttr edge : {ring.getFullAttr(), ring.getFreeAttr()})
          add(kernelOf(op).lookup<EdgeOp>(edge), "slots", delta);
        add(op, "slots", delta);
      });
    }
    if (op.getOffset() && *op.getOffset() >= 16)
      push("shift ring", "-16", [](Operation *op) { add(op, "offset", -16); });
  }

  void buffer(BufferOp op) {
    if (op.getSpace() != Space::Smem) {
      for (Mutability to : {Mutability::Immutable, Mutability::Written, Mutability::Pages})
        if (to != op.getMutability())
          push("wrong space", stringifyMutability(to),
               [=](Operation *op) { cast<BufferOp>(op).setMutability(to); });
      return;
    }
    if (op.getSlots() > 1)
      push("early reuse", "slots -1", [](Operation *op) { add(op, "slots", -1); });
    push("miscount slots", "slots +1", [](Operation *op) { add(op, "slots", 1); });
    if (op.getGuard())
      push("drop guard", "", [](Operation *op) { op->removeAttr("guard"); });
    if (!op.getOffset())
      return;
    if (*op.getOffset() >= 16)
      push("shift buffer", "-16", [](Operation *op) { add(op, "offset", -16); });
    push("shift buffer", "+16", [](Operation *op) { add(op, "offset", 16); });
    for (auto other : kernelOf(op).getOps<BufferOp>())
      if (other != op && other.getSpace() == Space::Smem && other.getOffset() &&
          *other.getOffset() < *op.getOffset()) {
        const int64_t place = *other.getOffset();
        push("early reuse", "bytes of @" + other.getSymName(),
             [=](Operation *op) { set(op, "offset", place); });
      }
  }

  void exchange(ExchangeOp op) {
    for (WordKind word :
         {WordKind::Sentinel, WordKind::Epoch, WordKind::Plain, WordKind::Triple, WordKind::Number})
      if (word != op.getWord())
        push("wrong sentinel", stringifyWordKind(word),
             [=](Operation *op) { cast<ExchangeOp>(op).setWord(word); });
    push("wrong scope", "peers", [](Operation *op) {
      auto exchange = cast<ExchangeOp>(op);
      exchange.setPeers(!exchange.getPeers());
    });
    for (int64_t sets : {1, 2, 3})
      if (sets != op.getSets())
        push("wrong set", Twine(sets) + " sets", [=](Operation *op) { set(op, "sets", sets); });
  }

  ModuleOp plan;
  std::vector<Mutation> mutations;
  size_t at = 0;
  Operation *current = nullptr;
};

} // namespace

std::vector<Mutation> mutation::mutationsOf(ModuleOp plan) {
  return Collector(plan).run();
}

Mutant mutation::mutate(ModuleOp plan, const Mutation &mutation) {
  Mutant mutant{plan.clone(), {}};
  size_t index = 0;
  Operation *site = nullptr;
  mutant.plan->walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (index++ != mutation.op)
      return WalkResult::advance();
    site = op;
    return WalkResult::interrupt();
  });
  if (!isa<ModuleOp>(site))
    mutant.kernel = kernelOf(site);
  mutation.apply(site);
  return mutant;
}

OwningOpRef<ModuleOp> mutation::mutateAll(ModuleOp plan, ArrayRef<const Mutation *> mutations) {
  OwningOpRef<ModuleOp> copy = plan.clone();
  std::vector<Operation *> ops; // before any of them moves
  copy->walk<WalkOrder::PreOrder>([&](Operation *op) { ops.push_back(op); });
  for (const Mutation *mutation : mutations)
    mutation->apply(ops[mutation->op]);
  return copy;
}
