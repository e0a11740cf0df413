#include "passes/verify/Verify.h"

#include "passes/verify/Calls.h"
#include "passes/verify/Deadlock.h"
#include "passes/verify/Declared.h"
#include "passes/verify/Globals.h"
#include "passes/verify/Groups.h"
#include "passes/verify/Words.h"

#include "passes/Passes.h"
#include "passes/bounds/Bounds.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringMap.h"

namespace megalith {
#define GEN_PASS_DEF_VERIFYTASK
#include "passes/Passes.h.inc"
} // namespace megalith

using namespace mlir;
using namespace megalith;
using namespace megalith::task;
using namespace megalith::verify;

// One role signals an edge, each of its warps once a use; a bulk copy's arrival is the producer's.
static LogicalResult verifyArrivals(KernelOp kernel) {
  LogicalResult result = success();
  for (EdgeOp edge : kernel.edges()) {
    const bool isLaunches = edge.getKind() == EdgeKind::Launches;
    if (isLaunches && edge.getSlots() != 1)
      result = edge.emitOpError() << "expected 1 slot, as a launch is over when the next one ends, "
                                     "but got "
                                  << edge.getSlots();
    // Of a launches edge an SM arrives once a launch, whichever of its warps does.
    int64_t expected = edge.isGlobal() ? 1 : warpsOf(edge.getFrom());
    if (edge.getArrivals() != expected)
      result =
          edge.emitOpError() << "expected " << expected << " arrivals a use, one per warp of the "
                             << stringifyRole(edge.getFrom()) << ", but got " << edge.getArrivals();
  }
  return result;
}

// Roles of one SM wait for those of others, so all CTAs must be there at once: one an SM, or, of
// launches that overlap, `residents`, in what shared memory the target's SMs have. That a device
// has so many SMs, and the CTA's registers, its driver is asked before the first launch
// (Executor::checkDevice).
static LogicalResult verifyFits(KernelOp kernel) {
  const std::optional<int64_t> smem = kernel.getSmemBytes();
  if (!smem) {
    if (kernel.getKind() == kToy)
      return success();
    for (Operation &op : kernel.getBody().front())
      if (op.getAttrOfType<IntegerAttr>("offset"))
        return op.emitOpError() << "has a place in shared memory, but kernel @"
                                << kernel.getSymName() << " says not how much it has; add smem";
    return success();
  }
  const std::optional<int64_t> most = sharedMemoryOf(kernel.getTarget(), kernel.getResidents());
  if (most && *smem >= 0 && *smem <= *most)
    return success();
  InFlightDiagnostic error = kernel.emitOpError() << "@" << kernel.getSymName();
  if (!most)
    return error << ": expected a target whose shared memory is known, so that all CTAs are there "
                    "at once, but got \""
                 << kernel.getTarget() << "\"";
  return error << ": expected at most " << *most << " bytes of shared memory, as each of "
               << kernel.getResidents() << " CTAs on an SM of " << kernel.getTarget()
               << " can have that are to be there at once, but got smem " << *smem
               << "; make rings and buffers smaller"
               << (kernel.getResidents() > 1 ? ", or residents 1" : "");
}

// Barriers and the ring share their bytes with nothing; buffers may with each other, in order.
static LogicalResult verifyPlaces(KernelOp kernel) {
  struct Place {
    Operation *op;
    int64_t begin, end;
  };
  SmallVector<Place> alone, buffers;
  for (EdgeOp edge : kernel.edges())
    if (edge.getOffset())
      alone.push_back({edge, *edge.getOffset(), *edge.getOffset() + 8 * edge.getSlots()});
  for (auto ring : kernel.getOps<RingOp>())
    if (ring.getOffset())
      alone.push_back(
          {ring, *ring.getOffset(), *ring.getOffset() + ring.getSlots() * ring.getSlotBytes()});
  for (auto buffer : kernel.getOps<BufferOp>())
    if (buffer.getSpace() == Space::Smem && buffer.getOffset())
      buffers.push_back({buffer, *buffer.getOffset(), *buffer.getOffset() + buffer.byteSize()});
  LogicalResult result = success();
  constexpr int64_t kLine = 128;
  for (auto ring : kernel.getOps<RingOp>())
    if (ring.getOffset() && (*ring.getOffset() % kLine || ring.getSlotBytes() % kLine))
      result = ring.emitOpError() << "expected an offset and slots in multiples of " << kLine
                                  << " bytes, on which bulk copies land, but got offset "
                                  << *ring.getOffset() << " and slots of " << ring.getSlotBytes();
  // Arrays of one list after the other.
  for (const auto *list : {&alone, &buffers})
    for (const Place &place : *list)
      if (place.end > kernel.getSmemBytes().value_or(INT64_MAX))
        result = place.op->emitOpError()
                 << "is placed at bytes " << place.begin << " to " << place.end
                 << " of shared memory, of which the kernel has " << *kernel.getSmemBytes()
                 << "; expected a lower offset, or more smem";
  auto keepApart = [&](const Place &a, const Place &b) {
    if (a.begin < b.end && b.begin < a.end) {
      InFlightDiagnostic error = a.op->emitOpError()
                                 << "of @" << kernel.getSymName() << ": @"
                                 << cast<SymbolOpInterface>(a.op).getName() << ' '
                                 << "is placed at bytes " << a.begin << " to " << a.end
                                 << " of shared memory, some of which belong to @"
                                 << cast<SymbolOpInterface>(b.op).getName() << " at " << b.begin
                                 << " to " << b.end
                                 << "; expected places that lie apart: give one another offset";
      error.attachNote(b.op->getLoc()) << "the other is declared here";
      result = failure();
    }
  };
  for (size_t i = 0; i < alone.size(); ++i) {
    for (size_t j = 0; j < i; ++j)
      keepApart(alone[i], alone[j]);
    for (const Place &buffer : buffers)
      keepApart(alone[i], buffer);
  }
  return result;
}

// Ranks that exchange words tell each other when they may.
static LogicalResult verifyRanks(KernelOp kernel) {
  SmallVector<ExchangeOp> peers = kernel.peerExchanges();
  int64_t numbers = llvm::count_if(
      peers, [](ExchangeOp exchange) { return exchange.getWord() == WordKind::Number; });
  if (numbers == (kernel.getRanks() > 1))
    return success();
  return kernel.emitOpError() << "expected one exchange of numbers, through which "
                              << kernel.getRanks()
                              << " ranks tell each other that they have re-armed, but got "
                              << numbers;
}

namespace {

/// Proves one kernel case by case. SMs with equal signatures share a run, in whatever case.
class Proof {
public:
  explicit Proof(KernelOp kernel) : program(kernel) {}

  bool isStatic() const { return program.symbols.empty(); }

  /// Kinds of SM of a smaller case: all SMs may differ unless their runs are long.
  int64_t kinds() const {
    int64_t most = 1;
    for (const auto &[signature, run] : proven)
      most = std::max(most, run.steps);
    const int64_t kinds = std::max(kLeastKinds, kStepsOfSmallerCase / most);
    return kinds < program.sms ? kinds : INT64_MAX;
  }

  LogicalResult prove(const Valuation &valuation) {
    Faults faults;
    Local local(program, valuation, faults);
    std::vector<const Summary *> runs;
    std::vector<Standing> blocked;
    if (!runAll(valuation, local, faults, runs, blocked))
      return failure();
    if (!blocked.empty()) {
      reportDeadlock(program, blocked, faults);
      return failure();
    }
    checkSources(runs, faults);
    Words words(program, runs, faults);
    Globals globals(program, valuation, runs, faults);
    const bool allPassed = words.run();
    if (!globals.check())
      return failure();
    if (!allPassed) {
      reportDeadlock(program, standings(words, local), faults);
      return failure();
    }
    words.checkEnds();
    globals.checkEnds();
    return failure(faults.any());
  }

private:
  /// Smaller cases are draws from many. Their SMs are of as many kinds as this number of steps has
  /// room for, since 132 long runs find no more than some dozen and cost minutes.
  static constexpr int64_t kStepsOfSmallerCase = 1 << 21, kLeastKinds = 12;

  /// One run for each kind of SM. False if one takes too many steps.
  bool runAll(const Valuation &valuation, Local &local, Faults &faults,
              std::vector<const Summary *> &runs, std::vector<Standing> &blocked) {
    int64_t left = kMaxStepsOfAll;
    for (int64_t sm = 0; sm < program.sms; ++sm) {
      std::optional<Signature> signature = signatureOf(program, valuation, sm);
      auto it = signature ? proven.find(*signature) : proven.end();
      if (it == proven.end()) {
        Summary run = local.run(sm, left);
        std::optional<Standing> standing = run.isDone ? std::nullopt : local.standing();
        if (standing)
          blocked.push_back(*standing);
        if (!signature || (!run.isDone && !standing)) {
          reportDeadlock(program, blocked, faults);
          return false;
        }
        left -= run.steps + signature->size();
        it = proven.emplace(std::move(*signature), std::move(run)).first;
      }
      runs.push_back(&it->second);
    }
    return true;
  }

  /// A step finds the same on every SM: what the same step filled there. Where a stage leaves an SM
  /// out, what lies there is of an earlier one.
  void checkSources(ArrayRef<const Summary *> runs, Faults &faults) {
    for (size_t i = 0; i < program.accesses.size(); ++i) {
      std::optional<int64_t> first; // SM
      for (auto [sm, run] : llvm::enumerate(runs)) {
        const Source &source = run->sources[i];
        if (!source.reader)
          continue;
        if (!first)
          first = sm;
        const Source &known = runs[*first]->sources[i];
        if (source.writer == known.writer || !source.writer || !known.writer)
          continue;
        faults.at(source.reader, sm)
                .append("reads ", program.accesses[i].attr.getBuffer(), " as the ",
                        nameOfTask(source.writer), " filled it, but on SM ", *first, " as the ",
                        nameOfTask(known.writer),
                        " did; expected the same step to fill it on every SM")
                .attachNote(known.writer->getLoc())
            << "the one on SM " << *first << " is here";
        break;
      }
    }
  }

  /// Where the SMs stand whose polls do not all pass.
  std::vector<Standing> standings(const Words &words, Local &local) {
    std::vector<Standing> standings;
    for (int64_t sm = 0; sm < program.ranks * program.sms; ++sm) { // through all ranks
      if (words.isDone(sm))
        continue;
      local.run(sm % program.sms, kMaxStepsOfAll, &words.passed(sm));
      if (std::optional<Standing> standing = local.standing())
        standings.push_back(*standing);
    }
    return standings;
  }

  Program program;
  std::map<Signature, Summary> proven;
};

} // namespace

LogicalResult verify::verifyKernel(KernelOp kernel, int randomCases) {
  if (!kernel.isAtRoleLevel())
    return kernel.emitOpError() << "has no role regions to prove; run task-lower-to-roles first";
  if (failed(verifyArrivals(kernel)) || failed(verifyFits(kernel)) ||
      failed(verifyPlaces(kernel)) || failed(verifyRanks(kernel)) || failed(verifyDeclared(kernel)))
    return failure();
  Proof proof(kernel);
  if (failed(proof.prove(Valuation::largest())))
    return failure();
  const int64_t kinds = proof.kinds();
  // Without symbols there is one case.
  for (int seed = 0; seed < (proof.isStatic() ? 0 : randomCases); ++seed)
    if (failed(proof.prove(Valuation::random(seed, kinds)))) {
      kernel.emitRemark() << "the fault above needs a smaller case (seed " << seed
                          << "); the largest case passed";
      return failure();
    }
  return verifyCalls(kernel);
}

using Touched = llvm::MapVector<StringAttr, Operation *>;

/// The exchanges among those picked whose words role regions of `kernel` publish, or poll of a set.
static Touched touchedOf(KernelOp kernel, llvm::function_ref<bool(ExchangeOp)> pick,
                         std::optional<task::Set> polled) {
  Touched found;
  llvm::DenseSet<StringAttr> names;
  for (auto exchange : kernel.getOps<ExchangeOp>())
    if (pick(exchange))
      names.insert(exchange.getSymNameAttr());
  if (names.empty())
    return found;
  auto add = [&](Operation *op, ArrayAttr accesses) {
    for (auto access : accesses.getAsRange<AccessAttr>())
      if (names.contains(access.getBuffer().getAttr()) && (!polled || access.getSet() == *polled))
        found.insert({access.getBuffer().getAttr(), op});
  };
  kernel.walk([&](PollOp op) { add(op, polled ? op.getReads() : op.getWrites()); });
  kernel.walk([&](ComputeOp op) {
    if (!polled)
      add(op, op.getWrites());
  });
  return found;
}

/// Exchanges over launch edges that role regions of `kernel` read, or write.
static Touched handedOn(KernelOp kernel, bool isWrite) {
  return touchedOf(
      kernel, [](ExchangeOp exchange) { return !exchange.isSelfValidating(); },
      isWrite ? std::nullopt : std::optional(task::Set::Current));
}

/// The first step of any launch that does to the words what the launch at hand lacks.
static void noteOther(InFlightDiagnostic &error, ArrayRef<KernelOp> launches, StringAttr name,
                      llvm::function_ref<Touched(KernelOp)> touched, StringRef verb) {
  for (size_t index = 0; index < launches.size(); ++index) {
    KernelOp kernel = launches[index];
    const Touched found = touched(kernel);
    if (auto it = found.find(name); it != found.end()) {
      error.attachNote(it->second->getLoc())
          << "the " << nameOfTask(it->second) << " in @" << kernel.getSymName() << ' ' << verb
          << " them, in launch " << index;
      return;
    }
  }
}

// Words that cross into the next launch: published by the launch before each that polls them
// there, and polled by the launch that publishes them or by the next. Launches of a looping kernel
// are the business of Words.h.
static LogicalResult verifyCrossing(ArrayRef<KernelOp> launches) {
  auto crosses = [](ExchangeOp exchange) { return exchange.isCrossing(); };
  auto published = [&](KernelOp kernel) { return touchedOf(kernel, crosses, std::nullopt); };
  auto polled = [&](KernelOp kernel, task::Set set) { return touchedOf(kernel, crosses, set); };
  for (size_t i = 0; i < launches.size(); ++i) {
    KernelOp kernel = launches[i], last = i > 0 ? launches[i - 1] : KernelOp();
    if (kernel.isLooping())
      continue;
    const Touched before = last ? published(last) : Touched();
    for (auto [name, op] : polled(kernel, task::Set::Previous))
      if (!before.contains(name)) {
        InFlightDiagnostic error = op->emitOpError();
        error << "the " << nameOfTask(op) << " in @" << kernel.getSymName() << " polls words of @"
              << name.getValue() << " in launch " << i << " that the launch before publishes, but "
              << (last ? "@" + last.getSymName() + ", that one, publishes none"
                       : llvm::Twine("this is the step's first"))
              << "; expected a launch that publishes them right before it";
        noteOther(error, launches, name, published, "publishes");
        return failure();
      }
    const Touched own = polled(kernel, task::Set::Current);
    const Touched next =
        i + 1 < launches.size() ? polled(launches[i + 1], task::Set::Previous) : Touched();
    for (auto [name, op] : published(kernel))
      if (!own.contains(name) && !next.contains(name)) {
        InFlightDiagnostic error = op->emitOpError();
        error << "the " << nameOfTask(op) << " in @" << kernel.getSymName()
              << " publishes words of @" << name.getValue() << " in launch " << i
              << ", which neither this launch nor the next polls; expected a task.poll of them in "
                 "one of the two";
        noteOther(
            error, launches, name,
            [&](KernelOp other) {
              Touched all = polled(other, task::Set::Previous);
              for (auto entry : polled(other, task::Set::Current))
                all.insert(entry);
              return all;
            },
            "polls");
        return failure();
      }
  }
  return success();
}

// What launches hand on is written, whole (Words.h), by a launch before each that reads it, by none
// that reads it itself, and read before it is written again. More order is not needed: all accesses
// to such exchanges come after their role's launch_wait, so after the end of every launch before;
// that holds for overlapping launches too, since every CTA waits before it lets the next launch
// start.
static LogicalResult verifySequence(ModuleOp module) {
  SmallVector<KernelOp> launches;
  if (auto names = module->getAttrOfType<ArrayAttr>(kLaunchesAttr))
    for (auto name : names.getAsRange<FlatSymbolRefAttr>()) {
      auto kernel = dyn_cast_or_null<KernelOp>(SymbolTable::lookupSymbolIn(module, name));
      if (!kernel)
        return module.emitOpError() << "expected a kernel " << name << ", which a launch names";
      launches.push_back(kernel);
    }
  // Kernels without a step (tests of single ones) may poll what none of them publishes.
  if (!launches.empty() && failed(verifyCrossing(launches)))
    return failure();
  if (launches.empty())
    llvm::append_range(launches, module.getOps<KernelOp>());

  struct State {
    size_t writer; // launch
    Operation *op;
    bool isRead;
    llvm::SmallDenseSet<Operation *> readers = {}; ///< kernels
  };
  llvm::MapVector<StringAttr, State> states;
  for (auto [index, kernel] : llvm::enumerate(launches)) {
    for (auto [name, op] : handedOn(kernel, /*isWrite=*/false)) {
      auto it = states.find(name);
      // Had a launch between written it, that would be later in the list.
      if (it != states.end() && !it->second.readers.insert(kernel).second)
        return op->emitOpError() << "reads @" << name.getValue() << " in launch " << index
                                 << ", which its kernel read before and no launch has written "
                                    "since launch "
                                 << it->second.writer << "; expected the writer between the two";
      if (it == states.end())
        return op->emitOpError()
               << "reads @" << name.getValue() << " in launch " << index
               << ", which no launch of the step before it writes; expected one that does";
      it->second.isRead = true;
    }
    for (auto [name, op] : handedOn(kernel, /*isWrite=*/true)) {
      if (handedOn(kernel, /*isWrite=*/false).contains(name))
        return op->emitOpError() << "writes @" << name.getValue()
                                 << ", which this kernel reads too; expected the reader in a later "
                                    "launch, since nothing orders the SMs of one";
      auto [it, isNew] = states.insert({name, State{index, op, false}});
      if (!isNew && !it->second.isRead)
        return op->emitOpError() << "writes @" << name.getValue() << " in launch " << index
                                 << ", but no launch has read what launch " << it->second.writer
                                 << " wrote there; expected the reader between the two";
      it->second = State{index, op, false};
    }
  }
  for (auto &[name, state] : states)
    if (!state.isRead)
      return state.op->emitOpError()
             << "writes @" << name.getValue() << " in launch " << state.writer
             << ", which no launch of the step reads; expected a later one that does";
  auto layers = module->getAttrOfType<DenseI64ArrayAttr>(kLaunchLayersAttr);
  if (layers && layers.size() != static_cast<int64_t>(launches.size()))
    return module.emitOpError() << "expected a layer for each of " << launches.size()
                                << " launches, but megalith.launch_layers has " << layers.size();
  return success();
}

LogicalResult verify::verifyTogether(ModuleOp module) {
  LogicalResult result = verifySequence(module);
  llvm::StringMap<ExchangeOp> exchanges;
  for (auto kernel : module.getOps<KernelOp>())
    for (auto exchange : kernel.getOps<ExchangeOp>()) {
      if (exchange.getWord() == WordKind::Epoch)
        continue;
      auto [it, isNew] = exchanges.try_emplace(exchange.getSymName(), exchange);
      ExchangeOp other = it->second;
      if (exchange.getShape() != other.getShape() || exchange.getWord() != other.getWord() ||
          exchange.getElement() != other.getElement() || exchange.getPeers() != other.getPeers())
        result = exchange.emitOpError()
                 << "expected @" << exchange.getSymName()
                 << " with the same shape, words, element and peers as in the plan's other kernels";
    }
  for (auto kernel : module.getOps<KernelOp>()) {
    SymbolTable names(kernel); // a look-up without it walks the kernel
    for (auto &entry : exchanges) {
      if (!entry.getValue().isSelfValidating())
        continue; // only those who touch it know it
      auto own = names.lookup<ExchangeOp>(entry.getKey());
      if (own && own.getShape() == entry.getValue().getShape() &&
          own.getSets() == entry.getValue().getSets())
        continue;
      result = kernel.emitOpError()
               << "expected exchange @" << entry.getKey()
               << " with the same shape and sets as in the plan's other kernels: every launch "
                  "re-arms every exchange";
    }
  }
  return result;
}

LogicalResult verify::verifyPlan(ModuleOp module, int randomCases) {
  LogicalResult result = verifyTogether(module);
  for (auto kernel : module.getOps<KernelOp>())
    if (failed(verifyKernel(kernel, randomCases)))
      result = failure();
  return result;
}

namespace {
struct VerifyTask : megalith::impl::VerifyTaskBase<VerifyTask> {
  using VerifyTaskBase::VerifyTaskBase;
  void runOnOperation() override {
    if (failed(verify::verifyPlan(getOperation(), randomCases)))
      signalPassFailure();
  }
};
} // namespace
