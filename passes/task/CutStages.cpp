//===- CutStages.cpp - one kernel for each stage ----------------------------===//
//
// The stages of a step as launches of their own, one after another: what a persistent kernel is
// measured against, and a way to look at one stage alone. Every value between stages goes through
// global memory, written by one launch and read by later ones.
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"
#include "passes/task/Stages.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/raw_ostream.h"

#include <map>

namespace megalith {
#define GEN_PASS_DEF_CUTSTAGES
#include "passes/Passes.h.inc"
} // namespace megalith

using namespace mlir;
using namespace megalith;
using namespace megalith::task;

namespace {

/// A kernel of one stage, and which layer's weights it reads when the launch that it was cut from
/// is of layer 0 (-1: of the launch before the layers).
struct Cut {
  KernelOp kernel;
  int64_t layer;
};

struct CutStages : megalith::impl::CutStagesBase<CutStages> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    SmallVector<KernelOp> whole(module.getOps<KernelOp>());
    llvm::StringMap<SmallVector<Cut>> cuts;
    for (KernelOp kernel : whole) {
      if (failed(checkCuttable(kernel)))
        return signalPassFailure();
      for (auto stage : kernel.getOps<StageOp>())
        if (stage.getKind() != StageKind::TopK) {
          FailureOr<Cut> made = cut(kernel, stage);
          if (failed(made))
            return signalPassFailure();
          cuts[kernel.getSymName()].push_back(*made);
        }
    }
    listLaunches(whole, cuts);
    for (KernelOp kernel : whole)
      kernel.erase();
    // The names were taken until now.
    for (auto &entry : built)
      SymbolTable::setSymbolName(entry.second, entry.second.getSymName().drop_front(kTaken.size()));
  }

  static LogicalResult checkCuttable(KernelOp kernel) {
    for (auto stage : kernel.getOps<StageOp>())
      if (stage.getKind() == StageKind::Rows || stage.getKind() == StageKind::Combine ||
          pairsOf(stage))
        return stage.emitOpError() << "has no form as a launch of its own yet: an fp32 stream and "
                                      "normed experts only work with --launch=fused";
    for (auto stage : kernel.getOps<StageOp>())
      if (!stage.getBody().empty() && !stage.getBody().front().empty())
        return stage.emitOpError() << "expected a stage without role regions to cut out";
    for (auto exchange : kernel.getOps<ExchangeOp>())
      return exchange.emitOpError()
             << "expected values, not exchanges: stages are cut apart before "
                "task-materialize-exchanges";
    return success();
  }

  //===--------------------------------------------------------------------===//
  // One stage
  //===--------------------------------------------------------------------===//

  /// The kernel of `stage`; an equal one that is there already serves again.
  FailureOr<Cut> cut(KernelOp from, StageOp stage) {
    OpBuilder builder = OpBuilder::atBlockEnd(getOperation().getBody());
    std::string name = (kTaken + stage.getSymName()).str();
    auto kernel =
        KernelOp::create(builder, stage.getLoc(), builder.getStringAttr(name),
                         builder.getStringAttr(kStageKernelKind), from.getTargetAttr(),
                         from.getSmsAttr(), from.getRowsAttr(), /*smem_bytes=*/IntegerAttr(),
                         /*residents=*/builder.getI64IntegerAttr(1), /*trace=*/UnitAttr(),
                         /*launches=*/IntegerAttr(),
                         /*layered=*/IntegerAttr(), from.getRanksAttr());
    kernel.getBody().emplaceBlock();
    builder.setInsertionPointToStart(&kernel.getBody().front());

    // Routing is so cheap that every stage that needs it does it again, as every SM does.
    SmallVector<StageOp> stages;
    if (stage.getKind() == StageKind::ExpertUp || stage.getKind() == StageKind::ExpertDown)
      for (auto other : from.getOps<StageOp>())
        if (other.getKind() == StageKind::TopK && other->isBeforeInBlock(stage))
          stages.assign(1, other);
    stages.push_back(stage);
    SmallVector<StageOp> copies;
    for (StageOp original : stages) {
      auto copy = cast<StageOp>(original->clone());
      if (auto shared = configSymbol(copy, "shares_input"))
        bringRows(copy, from.lookup<StageOp>(shared));
      copy.setReadsAttr(currentSets(copy.getReads()));
      copies.push_back(copy);
    }
    FailureOr<int64_t> layer = declare(from, copies, builder);
    for (StageOp copy : copies)
      builder.insert(copy);
    if (failed(layer)) {
      kernel.erase();
      return failure();
    }
    return Cut{unite(kernel, from), *layer};
  }

  /// The stage brings its rows itself, normed as `loader` norms them.
  static void bringRows(StageOp stage, StageOp loader) {
    while (auto shared = configSymbol(loader, "shares_input"))
      loader = loader->getParentOfType<KernelOp>().lookup<StageOp>(shared);
    SmallVector<Attribute> reads = {inputOf(loader)};
    llvm::append_range(reads, stage.getReads());
    stage.setReadsAttr(ArrayAttr::get(stage.getContext(), reads));
    NamedAttrList config(stage.getConfig());
    config.erase("shares_input");
    for (StringRef key : {"norm", "eps", "gain"})
      if (Attribute value = loader.getConfig().get(key))
        config.set(key, value);
    stage.setConfigAttr(config.getDictionary(stage.getContext()));
  }

  /// Launches hand values on, so there is one set of each.
  static ArrayAttr currentSets(ArrayAttr accesses) {
    SmallVector<Attribute> list;
    for (auto access : accesses.getAsRange<AccessAttr>())
      list.push_back(AccessAttr::get(access.getContext(), access.getBuffer(), access.getAt(),
                                     access.getRows(), access.getCols(), access.getTable(),
                                     task::Set::Current));
    return ArrayAttr::get(accesses.getContext(), list);
  }

  /// Declares what the stages name, in the order in which they do, so that equal stages of
  /// different kernels give equal kernels; returns the layer whose weights they read.
  static FailureOr<int64_t> declare(KernelOp from, ArrayRef<StageOp> stages, OpBuilder &builder) {
    llvm::SetVector<Attribute> names;
    for (StageOp stage : stages) {
      for (ArrayAttr accesses : {stage.getReads(), stage.getWrites()})
        for (auto access : accesses.getAsRange<AccessAttr>())
          names.insert(access.getBuffer());
      for (NamedAttribute key : stage.getConfig())
        if (auto ref = dyn_cast<FlatSymbolRefAttr>(key.getValue()))
          names.insert(ref);
    }
    std::optional<int64_t> layer;
    int64_t slot = 0;
    auto place = [&](int64_t offset, bool isPerLayer) {
      bool agrees = !isPerLayer || !layer || *layer == offset;
      if (isPerLayer)
        layer = offset;
      return agrees;
    };
    for (Attribute name : names) {
      Operation *found = SymbolTable::lookupSymbolIn(from, cast<FlatSymbolRefAttr>(name));
      bool agrees = true;
      if (auto weights = dyn_cast_or_null<WeightsOp>(found)) {
        auto copy = cast<WeightsOp>(builder.clone(*weights));
        copy.setSlot(slot++);
        bool isPerLayer = llvm::any_of(weights.getCheckpoint().getAsValueRange<StringAttr>(),
                                       [](StringRef tensor) { return tensor.contains("{layer}"); });
        agrees = place(weights.getLayerOffset(), isPerLayer);
        copy.setLayerOffset(0);
      } else if (auto buffer = dyn_cast_or_null<BufferOp>(found)) {
        auto copy = cast<BufferOp>(builder.clone(*buffer));
        bool isValue = buffer.getMutability() == Mutability::Value;
        copy.setByLaunch(isValue);
        copy.setCrossing(false);
        copy.setSlot(isValue ? std::optional<int64_t>() : slot++);
        agrees = place(buffer.getLayerOffset(),
                       buffer.getMutability() == Mutability::Pages ||
                           buffer.getCheckpoint().value_or("").contains("{layer}"));
        copy.setLayerOffset(0);
      } else {
        return stages.back()->emitOpError()
               << "expected " << name << " to be weights or a buffer of the kernel";
      }
      if (!agrees)
        return stages.back()->emitOpError()
               << "expected a stage of one layer, but it reads weights of two";
    }
    return layer.value_or(0);
  }

  //===--------------------------------------------------------------------===//
  // All of them
  //===--------------------------------------------------------------------===//

  /// An equal kernel made before instead of `kernel`; else it, under a name of its own: the stage's
  /// where no other kind of it took that, else with the name of the kernel that it was cut from.
  KernelOp unite(KernelOp kernel, KernelOp from) {
    std::string text;
    llvm::raw_string_ostream stream(text);
    kernel->print(stream, OpPrintingFlags().enableDebugInfo(false).useLocalScope());
    if (auto it = built.find(text); it != built.end()) {
      kernel.erase();
      return it->second;
    }
    std::string name = kernel.getSymName().str();
    if (names.contains(name))
      name += ("_" + from.getSymName()).str();
    names.insert(name);
    SymbolTable::setSymbolName(kernel, name);
    built.insert({text, kernel});
    return kernel;
  }

  /// `megalith.launches` and `megalith.launch_layers` of the step.
  void listLaunches(ArrayRef<KernelOp> whole, const llvm::StringMap<SmallVector<Cut>> &cuts) {
    ModuleOp module = getOperation();
    Builder builder(&getContext());
    SmallVector<KernelOp> steps;
    if (auto list = module->getAttrOfType<ArrayAttr>(kLaunchesAttr))
      for (auto name : list.getAsRange<FlatSymbolRefAttr>())
        steps.push_back(module.lookupSymbol<KernelOp>(name));
    else
      steps.assign(whole.begin(), whole.end());
    SmallVector<Attribute> launches;
    SmallVector<int64_t> layers;
    int64_t layer = 0; // of the next launch of a layer
    for (KernelOp step : steps) {
      bool isBefore = step.getKind() == "embed";
      for (const Cut &part : cuts.find(step.getSymName())->second) {
        StringRef name = KernelOp(part.kernel).getSymName();
        launches.push_back(FlatSymbolRefAttr::get(&getContext(), name.drop_front(kTaken.size())));
        layers.push_back(std::max<int64_t>(0, part.layer + layer - isBefore));
      }
      layer += !isBefore;
    }
    module->setAttr(kLaunchesAttr, builder.getArrayAttr(launches));
    module->setAttr(kLaunchLayersAttr, builder.getDenseI64ArrayAttr(layers));
  }

  static constexpr StringLiteral kTaken = "cut.";
  /// By text under the stage's own name.
  std::map<std::string, KernelOp> built;
  llvm::StringSet<> names;
};

} // namespace
