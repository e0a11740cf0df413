// moe-cut-launches: a step becomes one function per distinct launch.
#include "passes/graph/GraphPasses.h"
#include "passes/why/Why.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/FormatVariadic.h"

namespace megalith {
#define GEN_PASS_DEF_CUTLAUNCHES
#include "passes/graph/GraphPasses.h.inc"
} // namespace megalith

using namespace mlir;
using namespace megalith;

namespace {

/// The functions of a launch's layer and of the next; null: none.
using Kinds = std::pair<Operation *, Operation *>;

/// One layer's function and where it is cut: what its projections make crosses to the next launch,
/// and so do linears of the same input (an output gate).
struct Layer {
  func::FuncOp function;
  moe::QkvProjOp projection;
  SmallVector<moe::LinearOp> beside;

  SmallVector<Value> values() {
    SmallVector<Value> values(projection.getResults());
    for (moe::LinearOp linear : beside)
      values.push_back(linear.getResult());
    return values;
  }
};

class CutLaunches : public megalith::impl::CutLaunchesBase<CutLaunches> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto steps = llvm::to_vector(module.getOps<moe::StepOp>());
    if (steps.size() != 1) {
      module.emitError() << "expected one moe.step to cut, but got " << steps.size();
      return signalPassFailure();
    }
    if (failed(cut(steps.front())))
      signalPassFailure();
  }

  LogicalResult cut(moe::StepOp step) {
    ModuleOp module = getOperation();
    SmallVector<Layer> layers;
    for (int64_t l = 0; l < step.getNumLayers(); ++l) {
      FailureOr<Layer> layer = cutPoint(module.lookupSymbol<func::FuncOp>(step.getLayer(l)));
      if (failed(layer))
        return failure();
      layers.push_back(*layer);
    }
    auto embed = module.lookupSymbol<func::FuncOp>(step.getEmbed());
    auto head = module.lookupSymbol<func::FuncOp>(step.getHead());

    // Equal launches are built once: the key is (layer, next layer), and of one layer those that
    // compute the same of different next ones.
    llvm::MapVector<Kinds, func::FuncOp> built;
    SmallVector<Attribute> launches;
    auto launch = [&](Operation *a, Operation *b, auto build) {
      func::FuncOp &function = built[{a, b}];
      if (!function)
        function = shareEqual(build(), a, built.getArrayRef());
      launches.push_back(FlatSymbolRefAttr::get(function.getSymNameAttr()));
    };
    launch(nullptr, layers.front().function, [&] { return buildEmbed(embed, layers.front()); });
    for (size_t l = 0; l + 1 < layers.size(); ++l)
      launch(layers[l].function, layers[l + 1].function,
             [&] { return buildLayer(layers[l], layers[l + 1]); });
    launch(layers.back().function, nullptr, [&] { return buildLast(layers.back(), head); });

    llvm::MapVector<func::FuncOp, SmallVector<Kinds>> kinds;
    for (auto &[key, function] : built)
      kinds[function].push_back(key);
    for (auto &[function, between] : kinds)
      explain(function, between, layers.size(),
              llvm::count(launches, FlatSymbolRefAttr::get(function.getSymNameAttr())));
    SmallVector<std::string> names;
    for (auto &[function, between] : kinds)
      names.push_back(nameFor(between, kinds, layers));
    step.erase();
    DenseSet<Operation *> done;
    for (func::FuncOp function : {embed, head})
      if (done.insert(function).second)
        function.erase();
    for (Layer &layer : layers)
      if (done.insert(layer.function).second)
        layer.function.erase();
    llvm::StringMap<std::string> renamed;
    for (auto [entry, name] : llvm::zip_equal(kinds, names)) {
      renamed[func::FuncOp(entry.first).getSymName()] = name;
      SymbolTable::setSymbolName(entry.first, name);
    }
    for (Attribute &ref : launches)
      ref = FlatSymbolRefAttr::get(&getContext(),
                                   renamed.at(cast<FlatSymbolRefAttr>(ref).getValue()));
    module->setAttr(kLaunchesAttr, ArrayAttr::get(&getContext(), launches));
    return success();
  }

  /// Another launch of the same layer that computes what `function` does, which is erased then; or
  /// itself. What a launch computes of the next layer is often all that two kinds have in common.
  static func::FuncOp shareEqual(func::FuncOp function, Operation *layer,
                                 ArrayRef<std::pair<Kinds, func::FuncOp>> built) {
    for (auto [key, other] : built)
      if (other && key.first == layer && function.getFunctionType() == other.getFunctionType() &&
          OperationEquivalence::isRegionEquivalentTo(&function.getBody(), &other.getBody(),
                                                     OperationEquivalence::IgnoreLocations)) {
        function.erase();
        return other;
      }
    return function;
  }

  static StringRef nameOf(Operation *layer) { return cast<func::FuncOp>(layer).getSymName(); }

  /// "embed", "last", "layer"; of layers of several kinds the kind, with the next one's if that
  /// makes a difference.
  static std::string nameFor(ArrayRef<Kinds> between,
                             const llvm::MapVector<func::FuncOp, SmallVector<Kinds>> &all,
                             ArrayRef<Layer> layers) {
    auto [layer, next] = between.front();
    if (!layer || !next)
      return layer ? "last" : "embed";
    if (llvm::all_of(layers, [&](const Layer &l) { return l.function == layers[0].function; }))
      return "layer";
    auto ofLayer = llvm::count_if(all, [&, layer = layer](const auto &entry) {
      return entry.second.front().first == layer && entry.second.front().second;
    });
    return (nameOf(layer) + (ofLayer > 1 ? "_" + nameOf(next) : Twine())).str();
  }

  static void explain(func::FuncOp function, ArrayRef<Kinds> between, size_t layers, int64_t uses) {
    auto [layer, next] = between.front();
    std::string from = layer ? llvm::formatv("from attention of a layer @{0}", nameOf(layer)).str()
                             : "from the embedding";
    std::string to = "to the logits";
    if (next) {
      to = "to the q, k, v of a layer ";
      llvm::interleave(
          between, [&](const Kinds &kinds) { to += ("@" + nameOf(kinds.second)).str(); },
          [&] { to += " or "; });
    }
    recordReason(
        function,
        {getArgumentName().str(), "launch", from + " " + to,
         llvm::formatv("a launch ends behind the projections of the next layer, so that only their "
                       "words and the residual cross; {0} of {1} launches {2} between layers of "
                       "these kinds",
                       uses, layers + 1, uses == 1 ? "is" : "are")});
  }

  FailureOr<Layer> cutPoint(func::FuncOp function) {
    auto projections = llvm::to_vector(function.getOps<moe::QkvProjOp>());
    if (projections.size() != 1)
      return function.emitError()
             << "expected one moe.qkv_proj in a layer, where launches are cut, but got "
             << projections.size();
    Layer layer{function, projections.front(), {}};
    for (auto linear : function.getOps<moe::LinearOp>())
      if (linear.getInput() == layer.projection.getInput())
        layer.beside.push_back(linear);
    return layer;
  }

  // The new functions stand at the module's end under temporary names ("launch.0"), since the names
  // of the functions they replace are still taken.
  func::FuncOp create(StringRef kind, TypeRange arguments) {
    OpBuilder builder = OpBuilder::atBlockEnd(getOperation().getBody());
    auto function = func::FuncOp::create(builder, getOperation().getLoc(),
                                         "launch." + std::to_string(created++),
                                         builder.getFunctionType(arguments, {}));
    function->setAttr(kLaunchAttr, builder.getStringAttr(kind));
    function.addEntryBlock();
    return function;
  }

  static void finish(func::FuncOp function, ValueRange results) {
    OpBuilder builder = OpBuilder::atBlockEnd(&function.getBody().front());
    func::ReturnOp::create(builder, function.getLoc(), results);
    function.setFunctionType(
        builder.getFunctionType(function.getArgumentTypes(), results.getTypes()));
    // What only the other part needed is dead now.
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.getBody().front())))
      if (isOpTriviallyDead(&op))
        op.erase();
  }

  /// Clones the ops of `function` but those whose results are mapped and the return; returns what
  /// the return returned.
  static SmallVector<Value> clone(func::FuncOp function, IRMapping &mapping, func::FuncOp into,
                                  bool isNext) {
    OpBuilder builder = OpBuilder::atBlockEnd(&into.getBody().front());
    for (Operation &op : function.getBody().front()) {
      if (auto back = dyn_cast<func::ReturnOp>(op)) {
        SmallVector<Value> results;
        for (Value value : back.getOperands())
          results.push_back(mapping.lookupOrNull(value));
        return results;
      }
      if (llvm::any_of(op.getResults(), [&](Value v) { return mapping.contains(v); }) ||
          llvm::any_of(op.getOperands(), [&](Value v) { return !mapping.contains(v); }))
        continue;
      Operation *copy = builder.clone(op, mapping);
      if (isNext)
        copy->setAttr(kNextAttr, builder.getUnitAttr());
    }
    return {};
  }

  /// Clones norms and projections of the next layer; returns what crosses.
  static SmallVector<Value> clonePre(Layer &next, Value residual, func::FuncOp into) {
    IRMapping mapping;
    mapping.map(next.function.getArgument(0), residual);
    clone(next.function, mapping, into, /*isNext=*/true);
    SmallVector<Value> results;
    for (Value value : next.values())
      results.push_back(mapping.lookup(value));
    return results;
  }

  func::FuncOp buildEmbed(func::FuncOp embed, Layer &next) {
    auto function = create("embed", embed.getArgumentTypes());
    IRMapping mapping;
    mapping.map(embed.getArguments(), function.getArguments());
    SmallVector<Value> results = clone(embed, mapping, function, /*isNext=*/false);
    llvm::append_range(results, clonePre(next, results.front(), function));
    finish(function, results);
    return function;
  }

  /// The rest of a layer in a new function of (residual, q, k, v, .., kv).
  func::FuncOp buildRest(Layer &layer, StringRef kind, SmallVector<Value> &results) {
    SmallVector<Type> types = {layer.function.getArgument(0).getType()};
    SmallVector<Value> crossing = layer.values();
    for (Value value : crossing)
      types.push_back(value.getType());
    types.push_back(layer.function.getArgument(1).getType());
    auto function = create(kind, types);
    IRMapping mapping;
    mapping.map(layer.function.getArgument(0), function.getArgument(0));
    mapping.map(crossing, function.getArguments().slice(1, crossing.size()));
    mapping.map(layer.function.getArgument(1), function.getArguments().back());
    results = clone(layer.function, mapping, function, /*isNext=*/false);
    return function;
  }

  func::FuncOp buildLayer(Layer &layer, Layer &next) {
    SmallVector<Value> results;
    auto function = buildRest(layer, "layer", results);
    SmallVector<Value> raw = clonePre(next, results.front(), function);
    results.insert(results.begin() + 1, raw.begin(), raw.end());
    finish(function, results);
    return function;
  }

  func::FuncOp buildLast(Layer &layer, func::FuncOp head) {
    SmallVector<Value> results;
    auto function = buildRest(layer, "last", results);
    IRMapping mapping;
    mapping.map(head.getArgument(0), results.front());
    SmallVector<Value> logits = clone(head, mapping, function, /*isNext=*/false);
    // The residual after the last layer stays observable beside the logits.
    results.insert(results.begin() + 1, logits.begin(), logits.end());
    finish(function, results);
    return function;
  }

  int created = 0; ///< functions
};

} // namespace
