//===- MergeLaunches.cpp - a step's kernels become one that loops -----------===//
//
// The kernels of a step have most stages in common: the projections that end the embed launch are
// those that end every layer, and the last launch differs from a layer's in its end only. Stages
// that are equal are written once and say in which launches they run, so the step kernel is hardly
// longer than a layer's.
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"
#include "passes/task/Stages.h"
#include "passes/why/Why.h"
#include "runtime/abi.h"

#include "llvm/ADT/SetVector.h"

namespace megalith {
#define GEN_PASS_DEF_MERGELAUNCHES
#include "passes/Passes.h.inc"
} // namespace megalith

using namespace mlir;
using namespace megalith;
using namespace megalith::task;

namespace {

constexpr StringLiteral kLaunches = "megalith.launches"; // as moe-cut-launches leaves it

/// Bytes of kernel parameters that a launch can have.
constexpr int64_t kMaxParameterBytes = 32764;

/// One kernel of the step and its launches [first, end).
struct Part {
  KernelOp kernel;
  int64_t first, end;
};

/// A stage of the merged kernel, and the launches in which it runs so far.
struct Merged {
  StageOp stage;
  int64_t first, end;
};

struct MergeLaunches : megalith::impl::MergeLaunchesBase<MergeLaunches> {
  void runOnOperation() override {
    FailureOr<SmallVector<Part>> parts = partsOf(getOperation());
    if (failed(parts) || failed(merge(*parts)))
      signalPassFailure();
  }

  static FailureOr<SmallVector<Part>> partsOf(ModuleOp module) {
    auto names = module->getAttrOfType<ArrayAttr>(kLaunches);
    if (!names || names.empty())
      return module.emitError() << "expected " << kLaunches
                                << " to name the kernel of each launch: run moe-cut-launches first";
    for (auto kernel : module.getOps<KernelOp>())
      for (auto stage : kernel.getOps<StageOp>())
        if (stage.getKind() == StageKind::Rows || stage.getKind() == StageKind::Combine ||
            pairsOf(stage))
          return stage.emitOpError() << "has no form in a kernel that loops over launches yet: an "
                                        "fp32 stream and normed experts only work with "
                                        "--scope=layer";
    SmallVector<Part> parts;
    for (auto [launch, name] : llvm::enumerate(names.getAsRange<FlatSymbolRefAttr>())) {
      auto kernel = module.lookupSymbol<KernelOp>(name.getValue());
      if (!kernel)
        return module.emitError() << "launch " << launch << ": no kernel is called " << name;
      if (!parts.empty() && parts.back().kernel == kernel) {
        ++parts.back().end;
        continue;
      }
      if (llvm::any_of(parts, [&](const Part &part) { return part.kernel == kernel; }))
        return kernel.emitOpError()
               << "has launches that do not follow one another, which a loop over the step's "
                  "launches has no form for yet: compile with --scope=layer";
      int64_t first = static_cast<int64_t>(launch);
      parts.push_back({kernel, first, first + 1});
    }
    return parts;
  }

  LogicalResult merge(ArrayRef<Part> parts) {
    ModuleOp module = getOperation();
    KernelOp first = parts.front().kernel;
    for (const Part &part : parts)
      if (KernelOp kernel = part.kernel;
          kernel.isAtRoleLevel() || kernel.getSms() != first.getSms() ||
          kernel.getRows() != first.getRows() || kernel.getTarget() != first.getTarget())
        return kernel.emitOpError() << "expected stages without role regions, for the target, SMs "
                                       "and rows of @"
                                    << first.getSymName();
    SmallVector<Merged> stages;
    for (const Part &part : parts)
      if (failed(mergeStages(part, stages)))
        return failure();

    int64_t launches = parts.back().end;
    OpBuilder builder(first);
    auto step = KernelOp::create(
        builder, first.getLoc(), builder.getStringAttr("step"), builder.getStringAttr("step"),
        first.getTargetAttr(), first.getSmsAttr(), first.getRowsAttr(), IntegerAttr(),
        /*residents=*/builder.getI64IntegerAttr(1), /*trace=*/UnitAttr(),
        builder.getI64IntegerAttr(launches), builder.getI64IntegerAttr(0), first.getRanksAttr());
    step.getBody().emplaceBlock();
    builder = OpBuilder::atBlockEnd(&step.getBody().front());
    for (const Part &part : parts)
      if (failed(mergeDeclarations(part.kernel, step, builder)))
        return failure();
    if (failed(assignSlots(step)))
      return failure();
    for (const Merged &merged : stages) {
      auto stage = cast<StageOp>(builder.clone(*merged.stage));
      if (merged.first > 0 || merged.end < launches)
        stage.setDuring(ArrayRef<int64_t>{merged.first, merged.end});
    }
    auto none = builder.getArrayAttr({});
    StageOp::create(builder, first.getLoc(), builder.getStringAttr("launch_end"),
                    StageKindAttr::get(&getContext(), StageKind::LaunchEnd), IntegerAttr(),
                    IntegerAttr(), AffineMapAttr(), none, none, builder.getDictionaryAttr({}),
                    StringAttr(), DenseI64ArrayAttr());

    for (const Part &part : parts)
      KernelOp(part.kernel).erase();
    SmallVector<Attribute> names(launches, FlatSymbolRefAttr::get(step.getSymNameAttr()));
    module->setAttr(kLaunches, builder.getArrayAttr(names));
    return success();
  }

  //===--------------------------------------------------------------------===//
  // Stages
  //===--------------------------------------------------------------------===//

  /// Equal but for what earlier passes noted about the launch around the stage.
  static bool isEqual(StageOp a, StageOp b) {
    auto attributes = [](StageOp stage) {
      NamedAttrList list(stage->getAttrs());
      list.erase(kDepends);
      list.erase(kWhy);
      return list.getDictionary(stage.getContext());
    };
    return attributes(a) == attributes(b);
  }

  /// Adds the part's launches to the stages it shares, and its own stages right before the next
  /// that it shares.
  LogicalResult mergeStages(const Part &part, SmallVector<Merged> &stages) {
    KernelOp kernel = part.kernel;
    SmallVector<StageOp> own; // not yet placed
    size_t from = 0;
    for (StageOp stage : kernel.getOps<StageOp>()) {
      auto found = llvm::find_if(llvm::drop_begin(stages, from), [&](const Merged &merged) {
        return isEqual(merged.stage, stage);
      });
      if (found == stages.end()) {
        own.push_back(stage);
        continue;
      }
      if (found->end != part.first)
        return stage.emitOpError()
               << "runs in launches [" << found->first << ", " << found->end
               << ") of the step and again from " << part.first
               << ", which a loop has no form for yet: compile with --scope=layer";
      found->end = part.end;
      addDepends(found->stage, stage);
      mergeReasons(found->stage, stage);
      place(own, found - stages.begin(), part, stages, from);
      ++from;
    }
    place(own, stages.size(), part, stages, from);
    for (size_t i = 0; i < stages.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        if (StageOp(stages[i].stage).getSymName() == StageOp(stages[j].stage).getSymName())
          return StageOp(stages[i].stage).emitOpError()
                 << "differs from the stage of that name in another launch of the step: what "
                    "differs needs another name";
    return success();
  }

  static void addDepends(StageOp to, StageOp from) {
    llvm::SetVector<Attribute> all;
    for (StageOp stage : {to, from})
      if (auto depends = stage->getAttrOfType<ArrayAttr>(kDepends))
        all.insert(depends.begin(), depends.end());
    if (!all.empty())
      to->setAttr(kDepends, ArrayAttr::get(to.getContext(), all.getArrayRef()));
  }

  static void place(SmallVector<StageOp> &own, size_t at, const Part &part,
                    SmallVector<Merged> &stages, size_t &from) {
    for (StageOp stage : own)
      stages.insert(stages.begin() + at++, {stage, part.first, part.end});
    own.clear();
    from = at;
  }

  //===--------------------------------------------------------------------===//
  // Declarations
  //===--------------------------------------------------------------------===//

  /// Clones what `step` does not have yet; what it has must be the same but for its slot. Edges are
  /// waited for by the roles of all launches.
  static LogicalResult mergeDeclarations(KernelOp kernel, KernelOp step, OpBuilder &builder) {
    for (Operation &op : kernel.getBody().front()) {
      if (isa<StageOp>(op))
        continue;
      auto name = cast<SymbolOpInterface>(op).getNameAttr();
      Operation *there = SymbolTable::lookupSymbolIn(step, name);
      if (!there) {
        Operation *copy = builder.clone(op);
        if (auto edge = dyn_cast<EdgeOp>(copy))
          edge.setId(static_cast<int64_t>(step.edges().size()) - 1);
        continue;
      }
      auto edge = dyn_cast<EdgeOp>(op);
      auto known = dyn_cast<EdgeOp>(there);
      if (edge && known) {
        llvm::SetVector<Attribute> roles(known.getTo().begin(), known.getTo().end());
        roles.insert(edge.getTo().begin(), edge.getTo().end());
        known.setToAttr(builder.getArrayAttr(roles.getArrayRef()));
        mergeReasons(known, edge);
        continue;
      }
      if (withoutSlot(&op) != withoutSlot(there))
        return op.emitOpError() << "differs from the declaration of that name in another launch of "
                                   "the step: what differs needs another name";
      mergeReasons(there, &op);
    }
    return success();
  }

  static DictionaryAttr withoutSlot(Operation *op) {
    NamedAttrList list(op->getAttrs());
    list.append("kind of declaration",
                StringAttr::get(op->getContext(), op->getName().getStringRef()));
    list.erase("slot");
    list.erase(kWhy);
    return list.getDictionary(op->getContext());
  }

  /// Does what is bound there change from launch to launch?
  static bool isLayered(Operation &op) {
    if (auto weights = dyn_cast<WeightsOp>(op))
      return llvm::any_of(weights.getCheckpoint().getAsValueRange<StringAttr>(),
                          [](StringRef tensor) { return tensor.contains("{layer}"); });
    auto buffer = dyn_cast<BufferOp>(op);
    if (!buffer)
      return false;
    return buffer.getMutability() == Mutability::Pages ||
           buffer.getCheckpoint().value_or("").contains("{layer}");
  }

  /// Slots anew, those that differ from launch to launch first.
  static LogicalResult assignSlots(KernelOp step) {
    int64_t next = 0;
    for (bool layered : {true, false}) {
      for (Operation &op : step.getBody().front()) {
        if (isLayered(op) != layered)
          continue;
        if (auto buffer = dyn_cast<BufferOp>(op))
          buffer.setSlot(next++);
        else if (auto weights = dyn_cast<WeightsOp>(op))
          weights.setSlot(next++);
        else if (auto exchange = dyn_cast<ExchangeOp>(op))
          exchange.setSlot(next++);
      }
      if (layered)
        step.setLayered(next);
    }
    if (next > kMaxBuffers)
      return step.emitOpError() << "expected at most " << kMaxBuffers
                                << " buffers and weights in all launches of the "
                                   "step, but got "
                                << next << ": compile with --scope=layer";
    int64_t bytes = kStepTableOffset + 8 * *step.getLayered() * *step.getLaunches();
    if (bytes > kMaxParameterBytes)
      return step.emitOpError() << "has " << *step.getLaunches() << " launches of "
                                << *step.getLayered() << " buffers that differ, " << bytes
                                << " bytes of kernel parameters, but a launch takes at most "
                                << kMaxParameterBytes << ": compile with --scope=layer";
    return success();
  }
};

} // namespace
