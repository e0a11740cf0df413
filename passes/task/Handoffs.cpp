#include "passes/task/Handoffs.h"

#include "passes/task/Stages.h"

using namespace mlir;

namespace megalith::task {

static int64_t padded(int64_t k) {
  return llvm::alignTo(k, 128);
}

std::string keptName(StageOp stage) {
  if (auto keeper = stage->getAttrOfType<FlatSymbolRefAttr>(kKept))
    return (keeper.getValue() + "_kept").str();
  return (stage.getSymName() + "_kept").str();
}

bool rowsComeByLaunch(KernelOp kernel) {
  for (auto stage : kernel.getOps<StageOp>())
    for (auto access : stage.getReads().getAsRange<AccessAttr>())
      if (auto source = kernel.lookup<ExchangeOp>(access.getBuffer());
          source && !source.isSelfValidating() &&
          (isGemv(stage) || stage.getKind() == StageKind::TopK))
        return true;
  return false;
}

int64_t vectorsOf(StageOp attention) {
  int64_t rows = attention->getParentOfType<KernelOp>().getRows();
  return rows * (*configInt(attention, "q_heads") / *configInt(attention, "kv_heads"));
}

int64_t mergePartsOf(StageOp stage) {
  return configInt(stage, "merge_parts").value_or(1);
}

int64_t combineShare(StageOp combine) {
  return llvm::alignTo(llvm::divideCeil(*configInt(combine, "n"), *configInt(combine, "row_sms")),
                       16);
}

bool pollerRoutes(KernelOp kernel) {
  for (auto stage : kernel.getOps<StageOp>())
    if (stage.getKind() == StageKind::TopK) {
      auto logits = cast<AccessAttr>(stage.getReads()[0]);
      auto source = kernel.lookup<ExchangeOp>(logits.getBuffer());
      if (!source || !source.isSelfValidating())
        return false;
      auto words = kernel.lookup<EdgeOp>(source.getEdgeAttr());
      return words && llvm::is_contained(words.getTo().getAsRange<RoleAttr>(),
                                         RoleAttr::get(kernel.getContext(), Role::Poller));
    }
  return false;
}

Role weightReader(KernelOp kernel) {
  return llvm::any_of(kernel.getOps<StageOp>(), pairsOf) ? Role::Consumer : Role::Epilogue;
}

bool consumersAttend(KernelOp kernel) {
  for (auto stage : kernel.getOps<StageOp>())
    if (stage.getKind() == StageKind::Merge) {
      auto partials = cast<AccessAttr>(stage.getReads()[0]);
      auto source = kernel.lookup<ExchangeOp>(partials.getBuffer());
      auto words = source ? kernel.lookup<EdgeOp>(source.getEdgeAttr()) : EdgeOp();
      return words && llvm::is_contained(words.getTo().getAsRange<RoleAttr>(),
                                         RoleAttr::get(kernel.getContext(), Role::Consumer));
    }
  return false;
}

namespace {
/// Collects the list; a buffer that several stages use gets the largest of their shapes.
class Collector {
public:
  explicit Collector(KernelOp kernel)
      : kernel(kernel), rows(kernel.getRows()), sms(kernel.getSms()),
        isByLaunch(rowsComeByLaunch(kernel)), bf16(BFloat16Type::get(kernel.getContext())),
        f32(Float32Type::get(kernel.getContext())), i32(IntegerType::get(kernel.getContext(), 32)) {
  }

  std::vector<Handoff> collect() {
    for (auto stage : kernel.getOps<StageOp>()) {
      if (isGemv(stage))
        addGemv(stage);
      switch (stage.getKind()) {
      case StageKind::Attention:
        addAttention(stage);
        break;
      case StageKind::TopK:
        addTopK(stage);
        break;
      case StageKind::ExpertDown:
        addExpertDown(stage);
        break;
      case StageKind::Merge:
        addMerge(stage);
        break;
      case StageKind::Rows:
        addRows(stage);
        break;
      case StageKind::Combine:
        addCombine(stage);
        break;
      case StageKind::Embed:
      case StageKind::Linear:
      case StageKind::ExpertUp:
      case StageKind::LaunchEnd:
        break;
      }
    }
    return std::move(list);
  }

private:
  /// Bytes of a row that the stage lays out itself.
  static std::string slotted(int64_t rowBytes) {
    return "SlottedRows<$offset, $rows, " + std::to_string(rowBytes) + ", $slots>";
  }

  void add(Handoff handoff) {
    for (Handoff &other : list)
      if (other.name == handoff.name) {
        if (other.rowBytes * other.rows < handoff.rowBytes * handoff.rows)
          other = std::move(handoff);
        return;
      }
    list.push_back(std::move(handoff));
  }

  /// Activation rows of width k.
  void addInput(int64_t k) {
    add({names::kInput.str(), rows, k, bf16, 2 * padded(k) + 32, 1, 1,
         "Rows<$offset, $rows, $cols>", Phase::Dense, isByLaunch ? "x_full" : "",
         isByLaunch ? "x_free" : "", isByLaunch ? Role::Poller : Role::Consumer,
         isByLaunch ? consumers : nobody});
  }

  void addRows(StageOp stage) {
    const bool isDealt = configInt(stage, "row_sms").has_value(); // one row at a time
    int64_t k = *configInt(stage, "k");
    addInput(isDealt ? static_cast<int64_t>(llvm::alignTo(llvm::divideCeil(k, rows), 128)) : k);
    add({names::kRowSums.str(), isDealt ? 2 : 2 * rows, 8, f32, 32, 1, 1,
         "WordRows<$offset, $rows, $cols>", Phase::Dense, "", "", Role::Consumer, nobody});
  }

  /// A row's pairs: this SM's channels of their outputs, and their scales.
  void addCombine(StageOp stage) {
    const int64_t pairs = *configInt(stage, "top_k"), share = combineShare(stage);
    addOutputs(pairs, share);
    addScales(pairs, Role::Epilogue);
  }

  /// Scales of a row's pairs, whoever adds them.
  void addScales(int64_t pairs, Role role) {
    add({names::kScales.str(), 1, pairs, f32, static_cast<int64_t>(llvm::alignTo(4 * pairs, 16)), 1,
         1, "WordRows<$offset, $rows, $cols>", Phase::Both, "", "", role, nobody});
  }

  /// Outputs of pairs, `cols` channels of each.
  void addOutputs(int64_t pairs, int64_t cols) {
    add({names::kDown.str(),
         pairs,
         cols,
         bf16,
         static_cast<int64_t>(llvm::alignTo(2 * cols, 16)),
         1,
         1,
         "WordRows<$offset, $rows, " + std::to_string(cols / 2) + ">",
         Phase::Both,
         "",
         "",
         Role::Epilogue,
         {}});
  }

  void addGemv(StageOp stage) {
    int64_t k = *configInt(stage, "k");
    if (inputOf(stage) && stage.getKind() != StageKind::ExpertDown)
      addInput(k / partsOf(stage));
    if (const int64_t pairs = pairsOf(stage))
      addScales(pairs, Role::Consumer);
    const int64_t columnTiles = llvm::divideCeil(rows, 8);
    add({names::kPart.str(),
         128 * columnTiles,
         8,
         f32,
         32,
         2,
         2,
         columnTiles > 1 ? "Part<$offset, $slots, " + std::to_string(columnTiles) + ">"
                         : "Part<$offset, $slots>",
         Phase::Both,
         "p_full",
         "p_free",
         Role::Consumer,
         {Role::Epilogue}});
    // The epilogue's slice: of the residual, or of sums that it gets from all ranks.
    if (residualOf(stage) || addsParts(stage)) {
      int64_t unit = sliceOf(stage).unit;
      add({keptName(stage),
           rows,
           2 * unit,
           bf16,
           static_cast<int64_t>(llvm::alignTo(4 * unit, 16)),
           1,
           1,
           "WordRows<$offset, $rows, " + std::to_string(unit) + ">",
           Phase::Both,
           "",
           "",
           Role::Epilogue,
           {}});
    }
  }

  void addAttention(StageOp stage) {
    int64_t dim = *configInt(stage, "head_dim"), vectors = vectorsOf(stage);
    int64_t heads = vectors / rows + 2;
    // Slots beyond the tiles of one SM would stay empty.
    int64_t tiles = llvm::divideCeil(rows * kMaxSplits * *configInt(stage, "kv_heads"), sms);
    if (!consumersAttend(kernel))
      add({names::kQkvIn.str(),
           rows,
           heads * dim,
           bf16,
           heads * dim * 2,
           std::min<int64_t>(2, tiles),
           1,
           slotted(heads * dim * 2),
           Phase::Attention,
           "qkv_full",
           "qkv_free",
           Role::Poller,
           {Role::Consumer}});
    add({names::kQuery.str(),
         static_cast<int64_t>(llvm::alignTo(vectors, 8)),
         dim,
         bf16,
         2 * dim + 32,
         1,
         1,
         slotted(2 * dim + 32),
         Phase::Attention,
         "",
         "",
         Role::Consumer,
         {}});
    add({names::kTail.str(),
         (30 + rows) / 16, // units that rows + 15 positions may touch
         32 * dim,
         pagesOf(stage) ? pagesOf(stage).getElement() : bf16,
         unitBytesOf(stage),
         1,
         1,
         slotted(unitBytesOf(stage)),
         Phase::Attention,
         "",
         "",
         Role::Consumer,
         {}});
    add({names::kApart.str(),
         8 * std::clamp<int64_t>(vectors, 2, 8), // of 64 vectors at a time
         dim + 4,
         f32,
         4 * (dim + 4),
         1,
         1,
         slotted(4 * (dim + 4)),
         Phase::Attention,
         "",
         "",
         Role::Consumer,
         {}});
  }

  void addMerge(StageOp stage) {
    int64_t parts = mergePartsOf(stage);
    int64_t words = llvm::divideCeil(*configInt(stage, "head_dim") / parts + 2, 3);
    int64_t merges = llvm::divideCeil(rows * *configInt(stage, "q_heads") * parts, sms);
    const bool isOwn = consumersAttend(kernel);
    add({names::kMparts.str(), 32, 4 * words, f32, 16 * words,
         isOwn ? 1 : std::min<int64_t>(2, merges), 1, slotted(16 * words), Phase::Attention,
         isOwn ? "" : "mparts_full", isOwn ? "" : "mparts_free",
         isOwn ? Role::Consumer : Role::Poller,
         isOwn ? nobody : std::vector<Role>{Role::Epilogue}});
  }

  void addTopK(StageOp stage) {
    int64_t experts = *configInt(stage, "experts"), pairs = rows * *configInt(stage, "k");
    int64_t active = std::min(pairs, experts);
    const bool byPoller = pollerRoutes(kernel);
    const Role router = byPoller ? Role::Poller : Role::Consumer;
    add({names::kLogits.str(), rows, experts, f32,
         static_cast<int64_t>(llvm::alignTo(4 * experts, 16)), 1, 1,
         "WordRows<$offset, $rows, $cols>", Phase::Both, isByLaunch ? "logits_full" : "", "",
         isByLaunch ? Role::Poller : router, isByLaunch ? consumers : nobody});
    // Where the poller routes it hands the lists on before it weighs the pairs (RoutingLists).
    int64_t bytes = llvm::alignTo(4 * (2 + 2 * active + (byPoller ? 1 : 3) * pairs), 16);
    add({names::kRouting.str(),
         1,
         bytes / 4,
         i32,
         bytes,
         1,
         1,
         slotted(bytes),
         Phase::Both,
         "routed",
         "",
         router,
         {Role::Producer, byPoller ? Role::Consumer : Role::Poller, Role::Epilogue}});
    if (byPoller)
      add({names::kWeights.str(),
           rows,
           pairs,
           f32,
           static_cast<int64_t>(llvm::alignTo(4 * pairs, 16)),
           1,
           1,
           "WordRows<$offset, $rows, $cols>",
           Phase::Both,
           "weighed",
           "",
           router,
           {weightReader(kernel)}});
  }

  /// The activations of an expert's rows pass through slots, so that a wide bucket needs no room
  /// for all pairs; as many slots as 16 KB hold.
  void addExpertDown(StageOp stage) {
    int64_t k = *configInt(stage, "k") / partsOf(stage), topK = *configInt(stage, "top_k");
    int64_t stride = 2 * padded(k) + 32;
    int64_t most = maxActive(kernel, *configInt(stage, "experts"), topK);
    int64_t slots =
        std::min(std::max<int64_t>(2, 16384 / (stride * rows)), std::max<int64_t>(2, most));
    add({names::kAct.str(),
         rows,
         k,
         bf16,
         stride,
         slots,
         1,
         slotted(stride),
         Phase::Dense,
         "act_full",
         "act_free",
         Role::Poller,
         {Role::Consumer}});
    if (!publishesOutputs(stage))
      addOutputs(rows * topK, 2 * sliceOf(stage).unit);
  }

  KernelOp kernel;
  const std::vector<Role> consumers = {Role::Consumer}, nobody = {};
  int64_t rows, sms;
  bool isByLaunch; ///< rows come through the poller
  Type bf16, f32, i32;
  std::vector<Handoff> list;
};
} // namespace

std::vector<Handoff> handoffsOf(KernelOp kernel) {
  return Collector(kernel).collect();
}

} // namespace megalith::task
