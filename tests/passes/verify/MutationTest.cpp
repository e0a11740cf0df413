// Mutation tests of the proof: every kernel given is accepted as it stands, and rejected after any
// one synchronising op is removed or any one capacity is changed.
#include "passes/Pipelines.h"
#include "passes/graph/GraphPasses.h"
#include "passes/verify/Program.h"
#include "passes/verify/Verify.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"

#include <catch2/catch.hpp>
#include <string>

using namespace mlir;
using namespace megalith;
using namespace megalith::task;

namespace {

/// Role-level kernels from a file, lowered by the pipeline if they are not yet, and the diagnostics
/// their verification gives.
class Fixture {
public:
  explicit Fixture(const std::string &path, LaunchMode launch = LaunchMode::Fused) {
    context.loadDialect<TaskDialect, moe::MoeDialect, func::FuncDialect>();
    original = parseSourceFile<ModuleOp>(path, &context);
    REQUIRE(original);
    if (original->getOps<KernelOp>().empty()) {
      PassManager manager(&context);
      for (auto &pass : pipelinePasses({.target = "sm_90a", .sms = 5, .launch = launch}))
        addTo(manager, std::move(pass));
      REQUIRE(succeeded(manager.run(*original)));
    }
  }

  /// A fresh copy to mutate.
  OwningOpRef<ModuleOp> parse() { return original->clone(); }

  /// The errors of op verifiers and proof, a line each, or "" when both accept; with
  /// `areNotesWanted` their notes behind them.
  std::string check(ModuleOp module, int randomCases = 2, bool areNotesWanted = false) {
    std::string errors;
    ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
      if (diagnostic.getSeverity() == DiagnosticSeverity::Error)
        errors += diagnostic.str() + "\n";
      for (Diagnostic &note : diagnostic.getNotes())
        if (areNotesWanted && diagnostic.getSeverity() == DiagnosticSeverity::Error)
          errors += "note: " + note.str() + "\n";
      return success();
    });
    if (failed(mlir::verify(module)) || failed(verify::verifyPlan(module, randomCases)))
      return errors.empty() ? "rejected without a message" : errors;
    return "";
  }

private:
  MLIRContext context;
  OwningOpRef<ModuleOp> original;
};

/// The first filling of a buffer has none before it that a warp may still read.
bool isFirstRefill(Operation *op) {
  auto refill = dyn_cast<RefillOp>(op);
  bool isFirst = false;
  if (refill)
    refill->getParentOfType<KernelOp>().walk([&](RefillOp other) {
      if (other.getBuffer() != refill.getBuffer())
        return WalkResult::advance();
      isFirst = other == refill;
      return WalkResult::interrupt();
    });
  return isFirst;
}

bool synchronises(Operation *op) {
  return !isFirstRefill(op) &&
         isa<WaitOp, PeekOp, SignalOp, AcquireOp, ReleaseOp, CopyOp, PollOp, RearmOp, LaunchWaitOp,
             LaunchDoneOp, LaunchDependentsOp, RefillOp>(op);
}

/// Acquires of an edge in [begin, end) of a role's code, loops at their most trips.
int64_t countAcquires(const verify::Program &program, ArrayRef<verify::Instr> code, size_t begin,
                      size_t end, StringRef edge, SmallVectorImpl<int64_t> &dims) {
  int64_t count = 0;
  for (size_t at = begin; at < end; ++at) {
    const verify::Instr &instr = code[at];
    if (instr.kind == verify::Instr::Stage && dims.front() >= instr.sms)
      at = instr.end - 1;
    if (instr.kind == verify::Instr::Acquire)
      count += verify::Program::nameOf(program.edges[instr.edge].op) == edge;
    if (instr.kind != verify::Instr::LoopBegin)
      continue;
    int64_t trips =
        program.tripsOf(program.loops[instr.loop], verify::Valuation::largest(), dims.data());
    dims.push_back(0);
    for (; dims.back() < trips; ++dims.back())
      count += countAcquires(program, code, at + 1, instr.end - 1, edge, dims);
    dims.pop_back();
    at = instr.end - 1;
  }
  return count;
}

/// Instructions of a kind on an edge in [begin, end) of a role's code, loops at their most trips.
int64_t countUses(const verify::Program &program, verify::Instr::Kind kind,
                  ArrayRef<verify::Instr> code, size_t begin, size_t end, StringRef edge,
                  SmallVectorImpl<int64_t> &dims) {
  int64_t count = 0;
  for (size_t at = begin; at < end; ++at) {
    const verify::Instr &instr = code[at];
    if (instr.kind == verify::Instr::Stage && dims.front() >= instr.sms)
      at = instr.end - 1;
    if (instr.kind == kind)
      count += verify::Program::nameOf(program.edges[instr.edge].op) == edge;
    if (instr.kind != verify::Instr::LoopBegin)
      continue;
    int64_t trips =
        program.tripsOf(program.loops[instr.loop], verify::Valuation::largest(), dims.data());
    dims.push_back(0);
    for (; dims.back() < trips; ++dims.back())
      count += countUses(program, kind, code, at + 1, instr.end - 1, edge, dims);
    dims.pop_back();
    at = instr.end - 1;
  }
  return count;
}

/// Most instructions of a kind on an edge that a role takes on any SM in one launch.
int64_t mostUses(EdgeOp edge, verify::Instr::Kind kind) {
  verify::Program program(edge->getParentOfType<KernelOp>());
  int64_t most = 0;
  for (int64_t sm = 0; sm < program.sms; ++sm)
    for (const auto &code : program.code) {
      SmallVector<int64_t> dims = {sm};
      most =
          std::max(most, countUses(program, kind, code, 0, code.size(), edge.getSymName(), dims));
    }
  return most;
}

/// The n-th op of the module that `pick` accepts, or null.
template <typename Pick> Operation *nth(ModuleOp module, int n, Pick pick) {
  Operation *found = nullptr;
  module.walk([&](Operation *op) {
    if (pick(op) && n-- == 0)
      found = op;
  });
  return found;
}

/// A file, and what the pipeline should make a launch of.
struct Subject {
  const char *path;
  LaunchMode launch = LaunchMode::Fused;
};

const Subject kSubjects[] = {{"tests/ir/task/m0.mlir"},
                             {"tests/passes/graph/small-model.mlir"},
                             {"tests/passes/graph/small-model.mlir", LaunchMode::PerStage},
                             {"tests/passes/graph/small-model.mlir", LaunchMode::Step}};

} // namespace

TEST_CASE("kernels pass as they stand") {
  for (const auto &[path, launch] : kSubjects) {
    Fixture fixture(path, launch);
    auto module = fixture.parse();
    REQUIRE(module);
    INFO(path);
    CHECK(fixture.check(*module, 8) == "");
  }
}

TEST_CASE("removing any wait, signal, copy, poll, re-arm or launch step is rejected") {
  for (const auto &[path, launch] : kSubjects) {
    Fixture fixture(path, launch);
    int sites = 0;
    for (;; ++sites) {
      auto module = fixture.parse();
      Operation *site = nth(*module, sites, synchronises);
      if (!site)
        break;
      std::string what;
      llvm::raw_string_ostream(what)
          << *site << " in " << path << (launch == LaunchMode::Step ? ", a loop" : "");
      site->erase();
      INFO("removed: " << what);
      const std::string errors = fixture.check(*module);
      CHECK(errors != "");
      // Whatever is missing: what was expected, and of what.
      SmallVector<StringRef> lines;
      StringRef(errors).split(lines, '\n', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
      for (StringRef line : lines) {
        INFO(line.str());
        CHECK((line.contains("expected") && line.contains("@")));
      }
    }
    CHECK(sites >= 25);
  }
}

TEST_CASE("changing any capacity or count is rejected unless it only leaves slots idle") {
  for (const auto &[path, launch] : kSubjects)
    for (const char *name : {"slots", "arrivals"})
      for (int delta : {-1, 1}) {
        Fixture fixture(path, launch);
        for (int n = 0;; ++n) {
          auto module = fixture.parse();
          Operation *site =
              nth(*module, n, [](Operation *op) { return isa<EdgeOp, RingOp, BufferOp>(op); });
          if (!site)
            break;
          auto count = site->getAttrOfType<IntegerAttr>(name);
          auto edge = dyn_cast<EdgeOp>(site);
          if (!count || (edge && edge.isGlobal()))
            continue;
          // More copies of a buffer than its edges use are a waste, not a fault.
          if (isa<BufferOp>(site) && delta > 0)
            continue;
          site->setAttr(name, IntegerAttr::get(count.getType(), count.getInt() + delta));
          std::string what;
          llvm::raw_string_ostream(what) << *site;
          INFO(name << (delta > 0 ? " raised: " : " lowered: ") << what);
          // Fewer credits, more phases than there are credits, more credits than the launch ever
          // asks for, or fewer phases and copies where it fills no more, only leave slots idle.
          using verify::Instr;
          EdgeOp filled = edge;
          if (auto buffer = dyn_cast<BufferOp>(site))
            if (FlatSymbolRefAttr guard = buffer.getGuardAttr())
              filled = buffer->getParentOfType<KernelOp>().lookup<EdgeOp>(guard);
          bool isSpare = delta < 0 && filled && filled.getKind() == EdgeKind::Mbarrier &&
                         mostUses(filled, Instr::Signal) < count.getInt();
          bool isHarmless =
              StringRef(name) == "slots" &&
              (isSpare || (edge && edge.getSymName() != "w_free" &&
                           (edge.getKind() == (delta > 0 ? EdgeKind::Mbarrier : EdgeKind::Credit) ||
                            (edge.getKind() == EdgeKind::Credit &&
                             mostUses(edge, Instr::Acquire) <= count.getInt()))));
          if (!isHarmless)
            CHECK(fixture.check(*module) != "");
        }
      }
}

TEST_CASE("a streamed block that nothing reads is rejected") {
  auto readsRing = [](Operation *op) {
    auto compute = dyn_cast<ComputeOp>(op);
    return compute && compute.getRingAttr();
  };
  for (const auto &[path, launch] : kSubjects) {
    Fixture fixture(path, launch);
    int sites = 0;
    for (;; ++sites) {
      auto module = fixture.parse();
      Operation *site = nth(*module, sites, readsRing);
      if (!site)
        break;
      INFO("removed: read " << sites << " of the ring in " << path);
      site->erase();
      CHECK_THAT(fixture.check(*module),
                 Catch::Contains("was never read") || Catch::Contains("of which only the first"));
    }
    CHECK(sites >= 2);
  }
}

TEST_CASE("messages name the roles, the edge and the mend") {
  Fixture fixture("tests/ir/task/m0.mlir");
  auto messageWithout = [&](auto pick) {
    auto module = fixture.parse();
    nth(*module, 0, pick)->erase();
    return fixture.check(*module);
  };
  auto edgeIs = [](Operation *op, StringRef name) {
    auto edge = op->getAttrOfType<FlatSymbolRefAttr>("edge");
    return edge && edge.getValue() == name;
  };
  CHECK_THAT(
      messageWithout([&](Operation *op) { return isa<SignalOp>(op) && edgeIs(op, "x_full"); }),
      Catch::Contains("deadlock: the consumer of @norm_linear1 waits for use") &&
          Catch::Contains("@x_full"));
  CHECK_THAT(messageWithout([&](Operation *op) { return isa<LaunchWaitOp>(op); }),
             Catch::Contains("no task.launch_wait before"));
  CHECK_THAT(messageWithout([&](Operation *op) { return isa<RearmOp>(op); }),
             Catch::Contains("re-armed 0 times"));
  CHECK_THAT(messageWithout([&](Operation *op) { return isa<PollOp>(op); }),
             Catch::Contains("published but never polled") || Catch::Contains("not all of which"));
}

TEST_CASE("what is not touched everywhere is told with the first place and with who has others") {
  Fixture fixture("tests/ir/task/m0.mlir");
  /// The messages where calls write two columns less of what `isOne` picks.
  auto messageWith = [&](auto isOne) {
    auto module = fixture.parse();
    module->walk([&](ComputeOp op) {
      SmallVector<Attribute> narrowed;
      for (auto access : op.getWrites().getAsRange<AccessAttr>()) {
        AffineMap cols = access.getCols().getValue();
        SmallVector<AffineExpr> widths(cols.getResults());
        if (isOne(op->getParentOfType<KernelOp>(), access.getBuffer()))
          for (AffineExpr &width : widths)
            width = width - 2;
        narrowed.push_back(AccessAttr::get(
            op.getContext(), access.getBuffer(), access.getAt(), access.getRows(),
            AffineMapAttr::get(AffineMap::get(cols.getNumDims(), 0, widths, op.getContext())),
            access.getTable(), access.getSet(), access.getOwn()));
      }
      op.setWritesAttr(ArrayAttr::get(op.getContext(), narrowed));
    });
    return fixture.check(*module, /*randomCases=*/2, /*areNotesWanted=*/true);
  };
  CHECK_THAT(messageWith([](KernelOp kernel, FlatSymbolRefAttr name) {
               auto buffer = kernel.lookup<BufferOp>(name);
               return buffer && buffer.getMutability() == Mutability::Written;
             }),
             Catch::Contains("of @m0: @out is not written everywhere, not at row 0, column ") &&
                 Catch::Contains("; expected each element exactly once") &&
                 Catch::Contains("note: the epilogue of @linear2 writes others here"));
  CHECK_THAT(messageWith([](KernelOp kernel, FlatSymbolRefAttr name) {
               return kernel.lookup<ExchangeOp>(name) != nullptr;
             }),
             Catch::Contains("polls words of @h") && Catch::Contains("expected"));
}

TEST_CASE("launches of stages that do not hand on what they should are rejected") {
  Fixture fixture("tests/passes/graph/small-model.mlir", LaunchMode::PerStage);
  /// The error when the step's launches are `change`d.
  auto errorAfter = [&](auto change) {
    auto module = fixture.parse();
    auto launches = llvm::to_vector(module.get()->getAttrOfType<ArrayAttr>(kLaunchesAttr));
    change(launches);
    module.get()->setAttr(kLaunchesAttr, ArrayAttr::get(module->getContext(), launches));
    return fixture.check(*module);
  };
  auto at = [](ArrayRef<Attribute> launches, StringRef name) {
    return llvm::find_if(launches,
                         [&](Attribute launch) {
                           return cast<FlatSymbolRefAttr>(launch).getValue() == name;
                         }) -
           launches.begin();
  };
  using Launches = SmallVector<Attribute>;
  CHECK(errorAfter([](Launches &) {}) == "");
  CHECK_THAT(errorAfter([&](Launches &list) { std::swap(list[0], list[1]); }),
             Catch::Contains("reads @resid in launch 0, which no launch of the step before it"));
  CHECK_THAT(errorAfter([&](Launches &list) { list.erase(list.begin() + at(list, "merge")); }),
             Catch::Contains("reads @attn in launch"));
  CHECK_THAT(errorAfter([&](Launches &list) {
               list.insert(list.begin() + at(list, "merge"), list[at(list, "attention")]);
             }),
             Catch::Contains("reads @qkv in launch 3, which its kernel read before"));
  CHECK_THAT(errorAfter([&](Launches &list) { list.insert(list.begin(), list[0]); }),
             Catch::Contains("writes @resid in launch") &&
                 Catch::Contains("no launch has read what launch"));
  CHECK_THAT(errorAfter([&](Launches &list) { list.pop_back(); }),
             Catch::Contains("which no launch of the step reads"));
  // A kernel that lets the next launch start before its own wait: three would overlap.
  auto module = fixture.parse();
  module->walk([&](LaunchWaitOp wait) {
    if (auto after = dyn_cast_or_null<LaunchDependentsOp>(wait->getNextNode()))
      after->moveBefore(wait);
  });
  CHECK_THAT(fixture.check(*module), Catch::Contains("letting the next launch start needs"));
}

TEST_CASE("launches of a loop: what joins them, and when stages run, is part of the proof") {
  Fixture fixture("tests/passes/graph/small-model.mlir", LaunchMode::Step);
  auto messageAfter = [&](auto mutate) {
    auto module = fixture.parse();
    mutate(*module);
    return fixture.check(*module);
  };
  auto nthOf = [&](ModuleOp module, int n, auto isIt) {
    Operation *op = nth(module, n, isIt);
    REQUIRE(op);
    return op;
  };
  auto onEdge = [](Operation *op, StringRef name) {
    auto edge = op->getAttrOfType<FlatSymbolRefAttr>("edge");
    return edge && edge.getValue() == name;
  };
  auto isDone = [](Operation *op) { return isa<LaunchDoneOp>(op); };

  CHECK_THAT(
      messageAfter([&](ModuleOp m) { nthOf(m, 0, isDone)->erase(); }),
      Catch::Contains("waits for all SMs to be over with launch 0, which not every one says"));
  // Twice a launch: the count is beyond what others wait for.
  CHECK_THAT(messageAfter([&](ModuleOp m) {
               Operation *done = nthOf(m, 0, isDone);
               OpBuilder(done).clone(*done);
             }),
             Catch::Contains("says 2 times that the SM is over") ||
                 Catch::Contains("after its last step of the launch"));
  // Too early: before the others have told.
  for (StringRef role : {"producer", "poller", "consumer"})
    CHECK_THAT(messageAfter([&](ModuleOp m) {
                 Operation *wait = nthOf(m, 0, [&](Operation *op) {
                   return isa<WaitOp>(op) && onEdge(op, (role + "_over").str());
                 });
                 nthOf(m, 0, isDone)->moveBefore(wait);
               }),
               Catch::Contains("says that the SM is over with launch 0, but nothing tells the "
                               "epilogue that the"));
  for (int prologue : {0, 1}) {
    INFO("the poller's wait of prologue " << prologue << " gone");
    CHECK(messageAfter([&](ModuleOp m) {
            nthOf(m, prologue, [&](Operation *op) {
              return isa<LaunchWaitOp>(op) &&
                     op->getParentOfType<RoleOp>().getRole() == Role::Poller;
            })->erase();
          }) != "");
  }
  // A stage that leaves out a launch, or runs in one too many.
  auto shift = [&](StringRef stage, int64_t first, int64_t end) {
    return messageAfter([&](ModuleOp m) {
      cast<StageOp>(nthOf(m, 0, [&](Operation *op) {
        auto it = dyn_cast<StageOp>(op);
        return it && it.getSymName() == stage;
      })).setDuring(ArrayRef<int64_t>{first, end});
    });
  };
  CHECK(shift("embed", 0, 2) != "");
  CHECK(shift("attention", 2, 4) != "");
  CHECK(shift("o_proj", 1, 3) != "");
  CHECK(shift("top_k", 2, 4) != "");
  CHECK(shift("expert_down", 1, 3) != "");
  CHECK(shift("qkv_proj", 0, 2) != "");
  CHECK(shift("qkv_proj", 1, 3) != "");
  CHECK(shift("head", 2, 4) != "");
  CHECK(shift("launch_end", 0, 3) != "");
  CHECK(shift("launch_end", 1, 4) != "");
}
