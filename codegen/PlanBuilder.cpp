//===- PlanBuilder.cpp - plan.json from kernels -----------------------------===//

#include "codegen/PlanBuilder.h"

#include "codegen/Declarations.h"
#include "codegen/EdgeWaits.h"
#include "ir/moe/Moe.h"
#include "runtime/packing.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace megalith::task;

namespace megalith {

using runtime::BufferInit;
using runtime::BufferKind;
using runtime::Plan;
using runtime::SlotRole;
using runtime::WeightForm;

ModelFacts collectFacts(ModuleOp module, StringRef model) {
  ModelFacts facts;
  facts.model = model.str();
  for (auto step : module.getOps<moe::StepOp>())
    facts.layers = step.getNumLayers();
  for (auto weight : module.getOps<moe::WeightOp>()) {
    SmallVector<int64_t> shape = weight.getCheckpointShape();
    if (weight.isPerExpert())
      shape.erase(shape.begin()); // one tensor an expert
    facts.tensors[weight.getCheckpoint().str()] = {shape.begin(), shape.end()};
  }
  return facts;
}

namespace {

template <class... Args> llvm::Error problem(const char *text, Args &&...args) {
  return llvm::createStringError(llvm::formatv(text, std::forward<Args>(args)...).str());
}

class Builder {
public:
  Builder(ArrayRef<KernelOp> kernels, const ModelFacts &facts) : kernels(kernels), facts(facts) {}

  llvm::Expected<Plan> build(ArrayRef<LaunchRequest> launches) {
    if (kernels.empty())
      return problem("no kernels to make a plan of");
    KernelOp first = kernels.front();
    plan.model = facts.model;
    plan.target = first.getTarget().str();
    plan.sms = first.getSms();
    plan.rows = first.getRows();
    plan.tp = first.getRanks();
    plan.layers = facts.layers;
    plan.weightLayout = runtime::kWeightLayoutDigest;
    for (KernelOp kernel : kernels)
      if (llvm::Error error = findModelShape(kernel))
        return error;
    for (KernelOp kernel : kernels)
      if (llvm::Error error = addKernel(kernel))
        return error;
    addLaunches(launches);
    if (llvm::Error error = runtime::validate(plan))
      return error;
    return std::move(plan);
  }

  runtime::KernelTrace traceOf(KernelOp kernel) {
    runtime::KernelTrace trace;
    for (auto stage : kernel.getOps<StageOp>()) {
      runtime::TraceStage &out = trace.stages.emplace_back();
      out.name = stage.getSymName().str();
      out.sms = stage.getSms().value_or(kernel.getSms());
      for (Role role : {Role::Producer, Role::Poller, Role::Consumer, Role::Epilogue})
        if (RoleOp region = stage.role(role); region && !region.getBody().front().empty()) {
          std::vector<std::string> waits;
          auto waitFor = [&](StringRef edge) {
            if (!isStream(kernel, edge) && !llvm::is_contained(waits, edge))
              waits.push_back(edge.str());
          };
          region.walk([&](Operation *op) {
            if (auto wait = dyn_cast<WaitOp>(op))
              waitFor(wait.getEdge());
            auto poll = dyn_cast<PollOp>(op);
            if (!poll)
              return;
            // The epilogue fetches what was there long before.
            for (FlatSymbolRefAttr edge : poll.edges())
              if (role != Role::Epilogue) {
                waitFor(edge.getValue());
                addHop(stage, poll, edge.getValue(), trace);
              }
          });
          out.roles.push_back({stringifyRole(role).str(), std::move(waits)});
        }
    }
    return trace;
  }

private:
  //===--------------------------------------------------------------------===//
  // Whole plan
  //===--------------------------------------------------------------------===//

  llvm::Error findModelShape(KernelOp kernel) {
    for (auto stage : kernel.getOps<StageOp>()) {
      if (stage.getKind() == StageKind::Embed)
        if (auto vocab = stage.getConfig().getAs<IntegerAttr>("vocab"))
          plan.vocab = vocab.getInt();
      if (stage.getKind() != StageKind::Attention)
        continue;
      auto heads = stage.getConfig().getAs<IntegerAttr>("kv_heads");
      auto dim = stage.getConfig().getAs<IntegerAttr>("head_dim");
      auto positions = stage.getConfig().getAs<IntegerAttr>("max_positions");
      if (!heads || !dim || !positions)
        return problem("kernel '{0}', stage '{1}': config lacks kv_heads, head_dim or "
                       "max_positions",
                       kernel.getSymName(), stage.getSymName());
      plan.kvHeads = heads.getInt();
      plan.headDim = dim.getInt();
      plan.maxPositions =
          plan.maxPositions ? std::min(plan.maxPositions, positions.getInt()) : positions.getInt();
      if (auto sharing = stage.getConfig().getAs<IntegerAttr>("head_ranks"))
        plan.headRanks = sharing.getInt();
      if (auto theta = stage.getConfig().getAs<FloatAttr>("rope_theta"))
        ropeTheta = theta.getValueAsDouble();
    }
    return llvm::Error::success();
  }

  /// Launch 0 comes before layer 0, so launch i > 0 is of layer i - 1 where nothing else is said.
  void addLaunches(ArrayRef<LaunchRequest> launches) {
    int64_t layer = 0;
    if (KernelOp first = kernels.front(); first.isLooping()) {
      for (const LaunchRequest &launch : launches)
        plan.launches.push_back({launch.kernel, int64_t(plan.launches.size()) - 1});
      return;
    }
    for (const LaunchRequest &launch : launches) {
      plan.launches.push_back(
          {launch.kernel, std::min(launch.layer.value_or(layer), plan.layers - 1)});
      layer += !embeds.count(launch.kernel);
    }
  }

  llvm::Error addKernel(KernelOp kernel) {
    if (kernel.getTarget() != plan.target || kernel.getSms() != plan.sms ||
        kernel.getRows() != plan.rows || kernel.getRanks() != plan.tp)
      return problem("kernel '{0}' is for {1}, {2} SMs and {3} rows, but '{4}' for {5}, {6} and "
                     "{7}: kernels of one plan agree in these and in ranks",
                     kernel.getSymName(), kernel.getTarget(), kernel.getSms(), kernel.getRows(),
                     KernelOp(kernels.front()).getSymName(), plan.target, plan.sms, plan.rows);
    if (!kernel.getSmemBytes())
      return problem("kernel '{0}': shared memory is not planned", kernel.getSymName());
    runtime::Kernel out;
    out.name = kernel.getSymName().str();
    out.file = "kernels/" + out.name + ".cu";
    out.smemBytes = *kernel.getSmemBytes();
    out.launches = kernel.getLaunches().value_or(0);
    out.layered = kernel.getLayered().value_or(0);
    for (ExchangeOp exchange : kernel.peerExchanges())
      out.peers.push_back(exchange.getSymName().str());
    if (kernel.getKind() == "embed")
      embeds.insert(out.name);
    if (kernel.isLooping())
      plan.launchMode = runtime::LaunchMode::Step;
    if (kernel.getKind() == kStageKernelKind)
      plan.launchMode = runtime::LaunchMode::PerStage;
    for (EdgeOp edge : kernel.edges()) {
      std::string to;
      llvm::interleave(
          edge.getTo().getAsRange<RoleAttr>(),
          [&](RoleAttr role) { to += stringifyRole(role.getValue()); }, [&] { to += ", "; });
      out.edges.push_back(
          {edge.getId(), edge.getSymName().str(), stringifyRole(edge.getFrom()).str(), to,
           stringifyEdgeKind(edge.getKind()).str(), edgesAwaitedBefore(kernel, edge)});
    }
    for (Operation &op : kernel.getBody().front()) {
      llvm::Error error = llvm::Error::success();
      if (auto buffer = dyn_cast<BufferOp>(op); buffer && buffer.getSpace() == Space::Global)
        error = addGlobal(buffer, out);
      else if (auto weights = dyn_cast<WeightsOp>(op))
        error = addWeights(weights, out);
      else if (auto exchange = dyn_cast<ExchangeOp>(op))
        error = addExchange(exchange, out);
      else if (auto edge = dyn_cast<EdgeOp>(op); edge && edge.getKind() == EdgeKind::Launches)
        error = addCounter(edge, out);
      if (error)
        return error;
    }
    if (kernel.getTrace())
      out.trace = traceOf(kernel);
    if (kernel.isLooping())
      findUses(kernel, out);
    plan.kernels.push_back(std::move(out));
    return llvm::Error::success();
  }

  //===--------------------------------------------------------------------===//
  // Records
  //===--------------------------------------------------------------------===//

  void addHop(StageOp stage, PollOp poll, StringRef edge, runtime::KernelTrace &trace) {
    runtime::TraceHop hop;
    hop.edge = edge.str();
    hop.to = stage.getSymName().str();
    for (auto read : poll.getReads().getAsRange<AccessAttr>())
      hop.previous |= read.getSet() == task::Set::Previous;
    for (auto loop = poll->getParentOfType<ForOp>(); loop; loop = loop->getParentOfType<ForOp>())
      hop.pieces |= loop.getTrips().getSymbol() && !loop.getIterate();
    auto own = stage->getParentOfType<KernelOp>();
    // Launches of one kernel mostly follow each other.
    hop.from = writerOf(own, hop.edge);
    for (KernelOp kernel : kernels)
      if (hop.from.empty())
        hop.from = writerOf(kernel, hop.edge);
    if (!hop.from.empty() && !llvm::is_contained(trace.hops, hop))
      trace.hops.push_back(hop);
  }

  /// The stage that publishes the words of `edge`; "" if none does.
  static std::string writerOf(KernelOp kernel, StringRef edge) {
    for (auto stage : kernel.getOps<StageOp>()) {
      bool writes = false;
      auto find = [&](ArrayAttr accesses) {
        for (auto write : accesses.getAsRange<AccessAttr>())
          if (auto exchange = kernel.lookup<ExchangeOp>(write.getBuffer()))
            writes |= exchange.getEdge() == edge;
      };
      stage.walk([&](ComputeOp compute) { find(compute.getWrites()); });
      stage.walk([&](PollOp poll) { find(poll.getWrites()); });
      if (writes)
        return stage.getSymName().str();
    }
    return "";
  }

  //===--------------------------------------------------------------------===//
  // Slots
  //===--------------------------------------------------------------------===//

  /// Adds `item` to the plan's list unless an equal one is there; a different one of the same name
  /// is an error.
  template <class T> llvm::Error unite(std::vector<T> &list, T item, StringRef kernel) {
    for (const T &other : list)
      if (other.name == item.name)
        return other == item ? llvm::Error::success()
                             : problem("kernel '{0}' declares '{1}' unlike another kernel of the "
                                       "plan: what differs needs another name",
                                       kernel, item.name);
    list.push_back(std::move(item));
    return llvm::Error::success();
  }

  /// Layers are counted from the launch's: the embed launch stands before layer 0, so what it calls
  /// the next layer is layer 0, the one it is launched with.
  int64_t layerOffset(const runtime::Kernel &kernel, int64_t offset, bool isPerLayer) {
    return isPerLayer ? offset - int64_t(embeds.count(kernel.name)) : 0;
  }

  llvm::Error bind(runtime::Kernel &kernel, int64_t slot, StringRef name, SlotRole role,
                   int64_t offset = 0) {
    kernel.slots.push_back({slot, name.str(), role, offset});
    return llvm::Error::success();
  }

  static runtime::Element elementOf(Type type) {
    return type.isBF16()                 ? runtime::Element::Bf16
           : type.isF32()                ? runtime::Element::F32
           : isa<Float8E4M3FNType>(type) ? runtime::Element::E4m3
                                         : runtime::Element::I32;
  }

  llvm::Error addGlobal(BufferOp buffer, runtime::Kernel &kernel) {
    const std::string name = buffer.getSymName().str();
    const int64_t slot = *buffer.getSlot();
    if (auto checkpoint = buffer.getCheckpoint())
      return addUnpacked(buffer, *checkpoint, kernel);
    if (isInverseFrequencies(buffer)) {
      runtime::Weight weight;
      weight.name = name;
      weight.form = WeightForm::InverseFrequencies;
      weight.element = runtime::Element::F32;
      weight.k = 2 * buffer.cols();
      weight.perLayer = false;
      weight.theta = ropeTheta;
      if (llvm::Error error = unite(plan.weights, weight, kernel.name))
        return error;
      return bind(kernel, slot, name, SlotRole::Immutable);
    }
    runtime::Buffer out;
    out.name = name;
    out.element = elementOf(buffer.getElement());
    out.bytes = llvm::alignTo(buffer.rows() * buffer.cols() * buffer.elementBytes(), 16);
    out.shape = {buffer.rows(), buffer.cols()};
    out.rankParts = buffer.getRankParts().value_or(ArrayRef<int64_t>()).vec();
    SlotRole role;
    switch (buffer.getMutability()) {
    case Mutability::Pages:
      out.kind = BufferKind::Kv;
      out.bytes = runtime::kvLayoutOf(plan, out).pageBytes();
      out.perLayer = true;
      out.window = windowOf(buffer);
      out.init = BufferInit::Poison;
      out.shape.clear();
      role = SlotRole::Kv;
      break;
    case Mutability::Written:
      out.kind = BufferKind::Output;
      out.init = BufferInit::Poison;
      role = SlotRole::Output;
      break;
    case Mutability::Immutable:
      out.kind = BufferKind::Immutable;
      out.init = BufferInit::Load;
      role = SlotRole::Immutable;
      break;
    default:
      return problem("kernel '{0}': @{1} is no buffer that a launch can bind", kernel.name, name);
    }
    if (llvm::Error error = unite(plan.buffers, out, kernel.name))
      return error;
    return bind(kernel, slot, name, role);
  }

  /// Positions that the attention over these pages looks back at, 0: all.
  static int64_t windowOf(BufferOp pages) {
    for (auto stage : pages->getParentOfType<KernelOp>().getOps<StageOp>())
      for (auto access : stage.getReads().getAsRange<AccessAttr>())
        if (access.getBuffer().getValue() == pages.getSymName())
          if (auto window = stage.getConfig().getAs<IntegerAttr>("window"))
            return window.getInt();
    return 0;
  }

  /// The table of RoPE: what an attention stage calls `inv_freq`.
  static bool isInverseFrequencies(BufferOp buffer) {
    auto kernel = buffer->getParentOfType<KernelOp>();
    return llvm::any_of(kernel.getOps<StageOp>(), [&](StageOp stage) {
      auto table = stage.getConfig().getAs<FlatSymbolRefAttr>("inv_freq");
      return table && table.getValue() == buffer.getSymName();
    });
  }

  /// What an attention stage divides keys or values by.
  static bool isKvScale(BufferOp buffer) {
    auto kernel = buffer->getParentOfType<KernelOp>();
    return llvm::any_of(kernel.getOps<StageOp>(), [&](StageOp stage) {
      return llvm::any_of(ArrayRef<StringRef>{"k_scale", "v_scale"}, [&](StringRef key) {
        auto scale = stage.getConfig().getAs<FlatSymbolRefAttr>(key);
        return scale && scale.getValue() == buffer.getSymName();
      });
    });
  }

  llvm::Expected<runtime::WeightPart> part(StringRef tensor, StringRef of) {
    const auto found = facts.tensors.find(tensor.str());
    if (found == facts.tensors.end())
      return problem("'{0}' is read from checkpoint tensor '{1}', which the model does not have",
                     of, tensor);
    runtime::WeightPart out;
    out.tensor = tensor.str();
    out.shape = found->second;
    return out;
  }

  /// A checkpoint tensor that kernels read as it is: a gain or the embedding table.
  llvm::Error addUnpacked(BufferOp buffer, StringRef tensor, runtime::Kernel &kernel) {
    auto source = part(tensor, buffer.getSymName());
    if (!source)
      return source.takeError();
    runtime::Weight weight;
    weight.name = buffer.getSymName().str();
    const bool isVector = source->shape.size() == 1;
    weight.form = isVector && buffer.rows() == 1 ? WeightForm::Vector : WeightForm::Table;
    weight.element = elementOf(buffer.getElement());
    weight.n = buffer.rows();
    weight.k = buffer.cols();
    weight.perLayer = tensor.contains(moe::WeightOp::kLayer);
    DictionaryAttr load = buffer.getLoadAttr();
    const StringRef kind = load ? load.getAs<StringAttr>("kind").getValue() : StringRef();
    // The only vectors of bf16 so far; scales of keys and values are around one, too.
    source->gain = isVector && (buffer.getElement().isBF16() || isKvScale(buffer));
    if (kind == "residual_gate") {
      runtime::Transform gate;
      gate.temperature = load.getAs<FloatAttr>("temperature").getValueAsDouble();
      for (auto [row, floor] : {std::pair(runtime::TransformKind::GateAlpha,
                                          load.getAs<FloatAttr>("floor").getValueAsDouble()),
                                std::pair(runtime::TransformKind::GateBeta, 0.0)}) {
        gate.kind = row;
        gate.floor = floor;
        weight.parts.push_back(*source);
        weight.parts.back().transforms.push_back(gate);
      }
    } else {
      weight.parts.push_back(*source);
      if (kind == "add1") {
        runtime::Transform add;
        add.kind = runtime::TransformKind::AddOne;
        weight.parts.back().transforms.push_back(add);
      }
    }
    if (buffer.getRankParts())
      for (runtime::WeightPart &part : weight.parts)
        part.transforms.push_back({.kind = runtime::TransformKind::Shard,
                                   .axis = runtime::Axis::Columns,
                                   .count = buffer.cols(),
                                   .groups = 1});
    if (llvm::Error error = unite(plan.weights, weight, kernel.name))
      return error;
    return bind(kernel, *buffer.getSlot(), weight.name, SlotRole::Weights,
                layerOffset(kernel, buffer.getLayerOffset(), weight.perLayer));
  }

  llvm::Error addWeights(WeightsOp op, runtime::Kernel &kernel) {
    runtime::Weight weight;
    weight.name = op.getSymName().str();
    const bool isGateUp = op.getPairing() == Pairing::GateUp;
    weight.form = op.getNvfp4() ? isGateUp ? WeightForm::GateUpNvfp4 : WeightForm::Nvfp4
                  : isGateUp    ? WeightForm::GateUpStrips
                                : WeightForm::Strips;
    weight.n = op.getN();
    weight.k = op.getK();
    weight.experts = op.getExperts() > 1 ? op.getExperts() : 0;
    if (op.getWide())
      weight.element = runtime::Element::F32;
    std::map<StringRef, int64_t> times;
    for (auto tensor : op.getCheckpoint().getAsValueRange<StringAttr>())
      ++times[tensor];
    std::map<StringRef, int64_t> taken;
    for (auto [index, tensor] : llvm::enumerate(op.getCheckpoint().getAsValueRange<StringAttr>())) {
      auto source = part(tensor, op.getSymName());
      if (!source)
        return source.takeError();
      weight.perLayer = tensor.contains(moe::WeightOp::kLayer);
      // A tensor that is named several times: of each matrix in it, equal ranges of rows in turn.
      if (times[tensor] > 1) {
        runtime::Transform slice;
        slice.count = source->shape[source->shape.size() - 2] / times[tensor];
        slice.first = taken[tensor]++ * slice.count;
        slice.groups = source->shape.size() == 3 ? source->shape[0] : 1;
        source->transforms.push_back(slice);
      }
      if (auto rows = op.getRankRows())
        shard(*source, (*rows)[index], times[tensor], op);
      // A rank's columns, where ranks divide K.
      if (plan.tp > 1 && source->shape.back() == plan.tp * int64_t(op.getK()))
        source->transforms.push_back({.kind = runtime::TransformKind::Shard,
                                      .axis = runtime::Axis::Columns,
                                      .count = op.getK(),
                                      .groups = 1});
      weight.parts.push_back(*source);
    }
    if (llvm::Error error = unite(plan.weights, weight, kernel.name))
      return error;
    return bind(kernel, op.getSlot(), weight.name, SlotRole::Weights,
                layerOffset(kernel, op.getLayerOffset(), weight.perLayer));
  }

  /// Takes a rank's `rows` rows of a tensor, or of each expert's matrix in it, after it was cut
  /// into `cuts` ranges.
  void shard(runtime::WeightPart &part, int64_t rows, int64_t cuts, WeightsOp op) {
    int64_t all = 1;
    for (int64_t extent : ArrayRef(part.shape).drop_back())
      all *= extent;
    const bool isBank =
        op.getExperts() > 1 && !StringRef(part.tensor).contains(moe::WeightOp::kExpert);
    const int64_t matrices = isBank ? int64_t(op.getExperts()) : 1;
    part.transforms.push_back(
        {.kind = runtime::TransformKind::Shard,
         .count = rows,
         .groups = std::max<int64_t>(1, plan.tp * rows / (all / cuts / matrices)),
         .matrices = isBank ? matrices : 0});
  }

  llvm::Error addCounter(EdgeOp edge, runtime::Kernel &kernel) {
    runtime::Buffer out;
    out.name = edge.getSymName().str();
    out.kind = BufferKind::Counter;
    out.init = BufferInit::Zero;
    out.element = runtime::Element::U32;
    out.shape = {1, 4};
    out.bytes = 16;
    if (llvm::Error error = unite(plan.buffers, out, kernel.name))
      return error;
    return bind(kernel, *edge.getSlot(), out.name, SlotRole::Exchange);
  }

  /// The launches of a looping kernel in which stages touch what a slot binds. Exchanges and
  /// counters belong to all.
  static void findUses(KernelOp op, runtime::Kernel &kernel) {
    for (runtime::SlotBinding &slot : kernel.slots) {
      if (slot.role == SlotRole::Exchange)
        continue;
      int64_t first = kernel.launches, end = 0;
      for (auto stage : op.getOps<StageOp>()) {
        bool isUsed = false;
        stage->walk([&](Operation *op) {
          op->getAttrDictionary().walk(
              [&](FlatSymbolRefAttr symbol) { isUsed |= symbol.getValue() == slot.name; });
        });
        if (!isUsed)
          continue;
        first = std::min(first, stage.getDuring() ? (*stage.getDuring())[0] : 0);
        end = std::max(end, stage.getDuring() ? (*stage.getDuring())[1] : kernel.launches);
      }
      slot.first = first;
      slot.end = end;
    }
  }

  llvm::Error addExchange(ExchangeOp exchange, runtime::Kernel &kernel) {
    runtime::Buffer out;
    out.name = exchange.getSymName().str();
    switch (exchange.getWord()) {
    case WordKind::Number:
      out.kind = BufferKind::Numbers;
      out.init = BufferInit::Zero;
      break;
    case WordKind::Sentinel:
      out.kind = BufferKind::Words;
      out.init = BufferInit::Empty;
      break;
    case WordKind::Epoch:
      out.kind = BufferKind::Epoch;
      out.init = BufferInit::Zero;
      break;
    case WordKind::Plain:
    case WordKind::Triple: // written before it is read, or the poison shows
      out.kind = BufferKind::Scratch;
      out.init = BufferInit::Poison;
      break;
    }
    out.bytes = llvm::alignTo(exchange.byteSize() / exchange.getSets(), 16);
    out.rankParts = exchange.getRankParts().value_or(ArrayRef<int64_t>()).vec();
    out.sets = exchange.getSets();
    out.crossing = exchange.isCrossing();
    out.element = elementOf(exchange.getElement());
    out.shape = {exchange.rows(), exchange.cols()};
    if (llvm::Error error = unite(plan.buffers, out, kernel.name))
      return error;
    return bind(kernel, exchange.getSlot(), out.name, SlotRole::Exchange);
  }

  ArrayRef<KernelOp> kernels;
  const ModelFacts &facts;
  Plan plan;
  double ropeTheta = 0;
  std::set<std::string> embeds; ///< kernels of kind embed
};

} // namespace

llvm::Expected<Plan> buildPlan(ArrayRef<KernelOp> kernels, ArrayRef<LaunchRequest> launches,
                               const ModelFacts &facts) {
  return Builder(kernels, facts).build(launches);
}

runtime::KernelTrace traceLayoutOf(ArrayRef<KernelOp> kernels, KernelOp kernel) {
  const ModelFacts none;
  return Builder(kernels, none).traceOf(kernel);
}

} // namespace megalith
