#include "passes/task/Stages.h"

#include "llvm/ADT/StringExtras.h"

using namespace mlir;

namespace megalith::task {

std::optional<int64_t> configInt(StageOp stage, StringRef key) {
  if (auto value = stage.getConfig().getAs<IntegerAttr>(key))
    return value.getInt();
  return std::nullopt;
}

std::optional<double> configFloat(StageOp stage, StringRef key) {
  if (auto value = stage.getConfig().getAs<FloatAttr>(key))
    return value.getValueAsDouble();
  return std::nullopt;
}

StringRef configString(StageOp stage, StringRef key) {
  auto value = stage.getConfig().getAs<StringAttr>(key);
  return value ? value.getValue() : StringRef();
}

FlatSymbolRefAttr configSymbol(StageOp stage, StringRef key) {
  return stage.getConfig().getAs<FlatSymbolRefAttr>(key);
}

void setConfig(StageOp stage, StringRef key, Attribute value) {
  NamedAttrList config(stage.getConfig());
  config.set(key, value);
  stage.setConfigAttr(config.getDictionary(stage.getContext()));
}

static std::optional<int64_t> streamInt(StageOp stage, StringRef key) {
  auto stream = stage->getAttrOfType<DictionaryAttr>(kStream);
  if (auto value = stream ? stream.getAs<IntegerAttr>(key) : IntegerAttr())
    return value.getInt();
  return std::nullopt;
}

std::optional<int64_t> windowOf(StageOp stage) {
  return streamInt(stage, "window");
}

std::optional<int64_t> lateWindowOf(StageOp stage) {
  auto late = streamInt(stage, "late_window");
  return late ? late : windowOf(stage);
}

int64_t pieceBlocksOf(StageOp stage) {
  return streamInt(stage, "blocks").value_or(1);
}

int64_t lastPieceBlocksOf(StageOp stage) {
  return streamInt(stage, "last_blocks").value_or(0);
}

bool joinsTiles(StageOp stage) {
  auto stream = stage->getAttrOfType<DictionaryAttr>(kStream);
  return stream && stream.contains("joined");
}

AccessAttr normedOf(StageOp stage) {
  if (stage.getKind() != StageKind::Rows || !configInt(stage, "row_sms"))
    return {};
  size_t streams = branchOf(stage) ? 1 : 0;
  ArrayRef<Attribute> writes = stage.getWrites().getValue();
  return writes.size() > streams ? cast<AccessAttr>(writes[streams]) : AccessAttr();
}

int64_t partsOf(StageOp stage) {
  return configInt(stage, "k_parts").value_or(1);
}

int64_t pairsOf(StageOp stage) {
  return stage.getKind() == StageKind::Linear ? configInt(stage, "pairs").value_or(0) : 0;
}

bool isGemv(StageOp stage) {
  return llvm::is_contained({StageKind::Linear, StageKind::ExpertUp, StageKind::ExpertDown},
                            stage.getKind());
}

static KernelOp kernelOf(StageOp stage) {
  return stage->getParentOfType<KernelOp>();
}

WeightsOp weightsOf(StageOp stage) {
  for (auto access : stage.getReads().getAsRange<AccessAttr>())
    if (auto weights = kernelOf(stage).lookup<WeightsOp>(access.getBuffer()))
      return weights;
  return {};
}

// Reads other than the weights, in order.
static SmallVector<AccessAttr> activationsOf(StageOp stage) {
  SmallVector<AccessAttr> list;
  for (auto access : stage.getReads().getAsRange<AccessAttr>())
    if (!kernelOf(stage).lookup<WeightsOp>(access.getBuffer()))
      list.push_back(access);
  return list;
}

AccessAttr inputOf(StageOp stage) {
  if (!isGemv(stage) || configSymbol(stage, "shares_input"))
    return {};
  SmallVector<AccessAttr> list = activationsOf(stage);
  return list.empty() ? AccessAttr() : list.front();
}

bool bringsRows(StageOp stage) {
  return stage.getKind() == StageKind::Rows || inputOf(stage) != nullptr;
}

AccessAttr branchOf(StageOp stage) {
  bool has = stage.getKind() == StageKind::Rows && configString(stage, "branch_norm") != "absent";
  return has ? cast<AccessAttr>(stage.getReads()[0]) : AccessAttr();
}

AccessAttr streamOf(StageOp stage) {
  return cast<AccessAttr>(stage.getReads().getValue().back());
}

AccessAttr residualOf(StageOp stage) {
  StringRef epilogue = configString(stage, "epilogue");
  if (epilogue != "residual" && epilogue != "combine_residual")
    return {};
  SmallVector<AccessAttr> list = activationsOf(stage);
  size_t index = configSymbol(stage, "shares_input") ? 0 : 1;
  return index < list.size() ? list[index] : AccessAttr();
}

static bool isSet(StageOp stage, StringRef key) {
  auto value = stage.getConfig().getAs<BoolAttr>(key);
  return value && value.getValue();
}

bool publishesOutputs(StageOp stage) {
  return llvm::is_contained({"squares", "parts"}, configString(stage, "epilogue"));
}

bool addsParts(StageOp stage) {
  return stage.getKind() == StageKind::Linear && configString(stage, "epilogue") == "parts";
}

bool quantizesInput(StageOp stage) {
  return isSet(stage, "quantize");
}

bool dealsTiles(StageOp stage) {
  return isSet(stage, "dealt");
}

Slice sliceOf(StageOp stage) {
  WeightsOp weights = weightsOf(stage);
  return {*configInt(stage, "unit"), weights.strips(), weights.blocks(), weights.tileStrips()};
}

Rectangle rectangleAt(AccessAttr access, int64_t tile) {
  SmallVector<int64_t> at = evalAll(access.getAt().getValue(), {tile});
  return {at[at.size() - 2], access.getRows(), at.back(),
          evalMin(access.getCols().getValue(), {tile})};
}

int64_t smsOf(StageOp stage) {
  return stage.getSms().value_or(kernelOf(stage).getSms());
}

bool hasStaticTiles(StageOp stage) {
  return stage.getTiles().has_value();
}

//===----------------------------------------------------------------------===//
// The form of a stage
//===----------------------------------------------------------------------===//

namespace {
enum class KeyType { Int, Float, Bool, Symbol, Choice };

/// A semantic key of `config`. `choices`: of a Choice, separated by spaces.
struct Key {
  StringLiteral name;
  KeyType type;
  bool isRequired = false;
  StringLiteral choices = "";
};
} // namespace

// The closed list of what a kind's config may say: a key that no pass reads would change nothing,
// silently.
static ArrayRef<Key> keysOf(StageKind kind) {
  using enum KeyType;
  static constexpr Key kEmbed[] = {{"hidden", Int, true},
                                   {"vocab", Int},
                                   {"unit", Int},
                                   {"norm", Choice, false, "none rms"},
                                   {"eps", Float}};
  static constexpr Key kLinear[] = {
      {"n", Int, true},
      {"k", Int, true},
      {"unit", Int, true},
      {"epilogue", Choice, true, "store qkv residual logits head parts"},
      {"norm", Choice, false, "none rms"},
      {"eps", Float},
      {"gain", Symbol},
      {"shares_input", Symbol},
      {"multiplier", Float},
      {"softcap", Float},
      {"valid", Int},
      {"k_parts", Int},
      {"pairs", Int},
      {"pairs_eps", Float}};
  static constexpr Key kAttention[] = {
      {"q_heads", Int, true},  {"kv_heads", Int, true},
      {"head_dim", Int, true}, {"scale", Float, true},
      {"rope_theta", Float},   {"rope_dim", Int},
      {"inv_freq", Symbol},    {"qk_norm", Choice, true, "none head"},
      {"eps", Float},          {"q_gain", Symbol},
      {"k_gain", Symbol},      {"max_positions", Int},
      {"merge_parts", Int},    {"head_ranks", Int},
      {"window", Int},         {"bounded", Bool},
      {"k_scale", Symbol},     {"v_scale", Symbol}};
  static constexpr Key kMerge[] = {{"q_heads", Int, true},
                                   {"head_dim", Int, true},
                                   {"merge_parts", Int},
                                   {"norm", Choice, false, "none head"},
                                   {"eps", Float}};
  static constexpr Key kTopK[] = {{"experts", Int, true},
                                  {"k", Int, true},
                                  {"score", Choice, true, "softmax softmax_selected sigmoid"},
                                  {"renormalize", Bool, true},
                                  {"renormalize_eps", Float},
                                  {"scale", Float},
                                  {"bias", Symbol},
                                  {"routing_in", Symbol},
                                  {"routing_out", Symbol}};
  static constexpr Key kExpertUp[] = {{"n", Int, true},
                                      {"k", Int, true},
                                      {"unit", Int, true},
                                      {"experts", Int, true},
                                      {"top_k", Int, true},
                                      {"activation", Choice, true, "silu"},
                                      {"norm", Choice, false, "none rms"},
                                      {"eps", Float},
                                      {"gain", Symbol},
                                      {"shares_input", Symbol},
                                      {"quantize", Bool},
                                      {"dealt", Bool}};
  static constexpr Key kExpertDown[] = {
      {"n", Int, true},     {"k", Int, true},
      {"unit", Int, true},  {"experts", Int, true},
      {"top_k", Int, true}, {"epilogue", Choice, true, "combine_residual squares parts"},
      {"gain", Symbol},     {"quantize", Bool},
      {"k_parts", Int},     {"dealt", Bool}};
  static constexpr Key kRows[] = {
      {"k", Int, true},      {"eps", Float, true},
      {"gain", Symbol},      {"branch_norm", Choice, true, "absent none rms input_scaled"},
      {"branch_eps", Float}, {"branch_gain", Symbol},
      {"gate", Symbol},      {"round_stream", Bool},
      {"row_sms", Int}};
  static constexpr Key kCombine[] = {{"n", Int, true},     {"row_sms", Int, true},
                                     {"top_k", Int, true}, {"eps", Float, true},
                                     {"parts", Int},       {"gain", Symbol}};
  switch (kind) {
  case StageKind::Embed:
    return kEmbed;
  case StageKind::Linear:
    return kLinear;
  case StageKind::Attention:
    return kAttention;
  case StageKind::Merge:
    return kMerge;
  case StageKind::TopK:
    return kTopK;
  case StageKind::ExpertUp:
    return kExpertUp;
  case StageKind::ExpertDown:
    return kExpertDown;
  case StageKind::Rows:
    return kRows;
  case StageKind::Combine:
    return kCombine;
  case StageKind::LaunchEnd:
    return {};
  }
  return {};
}

static LogicalResult checkKey(StageOp stage, const Key &key, Attribute value) {
  auto refuse = [&](StringRef what) {
    return stage.emitOpError() << "expected config key '" << key.name << "' to be " << what
                               << ", but got " << value;
  };
  switch (key.type) {
  case KeyType::Int:
    return isa<IntegerAttr>(value) && !isa<BoolAttr>(value) ? success() : refuse("an integer");
  case KeyType::Float:
    return isa<FloatAttr>(value) ? success() : refuse("a float");
  case KeyType::Bool:
    return isa<BoolAttr>(value) ? success() : refuse("true or false");
  case KeyType::Symbol:
    if (auto ref = dyn_cast<FlatSymbolRefAttr>(value))
      if (SymbolTable::lookupSymbolIn(kernelOf(stage), ref))
        return success();
    return refuse("a symbol of this kernel");
  case KeyType::Choice: {
    SmallVector<StringRef> choices;
    key.choices.split(choices, ' ');
    auto text = dyn_cast<StringAttr>(value);
    if (text && llvm::is_contained(choices, text.getValue()))
      return success();
    return refuse(("one of " + key.choices).str());
  }
  }
  return success();
}

// Capitals, `base` and k + capital are what the lowering adds for the printer.
static bool isPrinted(StringRef name) {
  return name == "base" || llvm::isUpper(name.front()) ||
         (name.size() > 1 && name.front() == 'k' && llvm::isUpper(name[1]));
}

static LogicalResult checkConfig(StageOp stage) {
  ArrayRef<Key> keys = keysOf(stage.getKind());
  for (const Key &key : keys)
    if (Attribute value = stage.getConfig().get(key.name)) {
      if (failed(checkKey(stage, key, value)))
        return failure();
    } else if (key.isRequired) {
      return stage.emitOpError() << "expected config to hold '" << key.name << "'";
    }
  for (NamedAttribute entry : stage.getConfig())
    if (!isPrinted(entry.getName()) &&
        llvm::none_of(keys, [&](const Key &key) { return key.name == entry.getName(); }))
      return stage.emitOpError() << "config key '" << entry.getName().getValue()
                                 << "' means nothing to a " << stringifyStageKind(stage.getKind())
                                 << " stage";
  StringRef norm = configString(stage, "norm");
  bool hasNorm = norm == "rms" || norm == "head" || configString(stage, "qk_norm") == "head";
  if (hasNorm && !configFloat(stage, "eps"))
    return stage.emitOpError() << "expected config to hold 'eps', since the stage norms";
  bool hasRope = configFloat(stage, "rope_theta") || configInt(stage, "rope_dim").value_or(0);
  if (hasRope && !configSymbol(stage, "inv_freq"))
    return stage.emitOpError() << "expected config to hold 'inv_freq', since positions rotate";
  if (configSymbol(stage, "q_gain") != nullptr && !configSymbol(stage, "k_gain"))
    return stage.emitOpError() << "expected config to hold 'k_gain' beside 'q_gain'";
  if (!configSymbol(stage, "k_scale") != !configSymbol(stage, "v_scale"))
    return stage.emitOpError() << "expected config to hold both 'k_scale' and 'v_scale' or neither";
  return success();
}

static LogicalResult checkGemv(StageOp stage) {
  WeightsOp weights = weightsOf(stage);
  if (!weights)
    return stage.emitOpError() << "expected a read of weights";
  int64_t n = *configInt(stage, "n"), k = *configInt(stage, "k");
  if (weights.getN() != n || weights.getK() != k)
    return stage.emitOpError() << "expected config to agree with weights @" << weights.getSymName()
                               << " (n = " << weights.getN() << ", k = " << weights.getK()
                               << "), but got n = " << n << ", k = " << k;
  Slice slice = sliceOf(stage);
  if (dealsTiles(stage)) {
    if (!weights.getNvfp4() || slice.unit < 1 || slice.unit % 8 || slice.strips % slice.unit)
      return stage.emitOpError()
             << "expected NVFP4 weights of whole units of tiles, since it deals "
                "them out, but unit is "
             << slice.unit << " of " << slice.strips << " strips";
    if (stage.getTiles() || partsOf(stage) > 1)
      return stage.emitOpError() << "expected no tiles of its own and whole rows of K, since it "
                                    "deals its tiles out";
  } else if (slice.unit < 1 || slice.unit * smsOf(stage) < slice.strips)
    return stage.emitOpError() << "expected slices of unit strips on " << smsOf(stage)
                               << " SMs to cover " << slice.strips << " strips, but unit is "
                               << slice.unit;
  if (weights.getNvfp4() && slice.unit % 8)
    return stage.emitOpError() << "expected slices of whole tiles of 8 strips, since @"
                               << weights.getSymName() << " is NVFP4, but unit is " << slice.unit;
  if (quantizesInput(stage) && !weights.getNvfp4())
    return stage.emitOpError() << "expected NVFP4 weights, since it quantises what they meet";
  if (!dealsTiles(stage) && (!stage.getTiles() || stage.getTiles() != stage.getSms()))
    return stage.emitOpError() << "expected as many tiles as SMs: a tile is an SM's slice";
  MLIRContext *context = stage.getContext();
  auto identity = AffineMap::get(
      1, 0, {getAffineDimExpr(0, context), getAffineConstantExpr(0, context)}, context);
  if (stage.getAssign() && stage.getAssign() != identity)
    return stage.emitOpError() << "expected tile t on SM t, first in its order: (t) -> (t, 0)";
  if (int64_t parts = partsOf(stage); parts < 1 || slice.blocks % parts || (parts > 1 && k % 128))
    return stage.emitOpError() << "expected k_parts to divide the " << slice.blocks
                               << " blocks of K, and K to be a multiple of 128, but got " << parts
                               << " parts of " << k;
  bool isShared = configSymbol(stage, "shares_input") != nullptr;
  if (!inputOf(stage) && !isShared)
    return stage.emitOpError() << "expected a read of activation rows, or shares_input";
  if (auto ref = configSymbol(stage, "shares_input")) {
    auto shared = kernelOf(stage).lookup<StageOp>(ref);
    if (!shared || !bringsRows(shared) || !shared->isBeforeInBlock(stage))
      return stage.emitOpError() << "expected shares_input to name an earlier stage that reads "
                                    "activation rows, but got "
                                 << ref;
  }
  StringRef epilogue = configString(stage, "epilogue");
  if (epilogue.ends_with("residual") && !residualOf(stage))
    return stage.emitOpError() << "expected a read of the residual's slice, since its epilogue is '"
                               << epilogue << "'";
  return success();
}

// A linear stage that adds the pairs of its row: their outputs and sums of squares, then weights.
static LogicalResult checkPairs(StageOp stage) {
  const int64_t pairs = pairsOf(stage);
  StringRef norm = configString(stage, "norm");
  if (kernelOf(stage).getRows() != 1 || stage.getReads().size() != 3 || !inputOf(stage) ||
      partsOf(stage) > 1 || (!norm.empty() && norm != "none"))
    return stage.emitOpError()
           << "expected a bucket of one row, whole and not normed, and reads of "
              "outputs, sums of squares and weights, since it adds "
           << pairs << " pairs";
  if (!configFloat(stage, "pairs_eps"))
    return stage.emitOpError() << "expected config to hold 'pairs_eps' beside 'pairs'";
  return success();
}

// A combine stage: outputs of pairs and sums of their squares, and what comes of them. Where it
// adds ranks' parts of the outputs it squares them itself.
static LogicalResult checkCombine(StageOp stage) {
  const int64_t each = *configInt(stage, "row_sms"), sms = kernelOf(stage).getSms();
  if (each < 1 || each > sms)
    return stage.emitOpError() << "expected row_sms of 1 to " << sms << ", but got " << each;
  const size_t writes = configInt(stage, "parts") ? 2 : 1;
  if (stage.getReads().size() != 2 || stage.getWrites().size() != writes)
    return stage.emitOpError() << "expected 2 reads, outputs and sums of squares, and " << writes
                               << " write(s) of a combine stage, but got "
                               << stage.getReads().size() << " and " << stage.getWrites().size();
  const int64_t ranks = kernelOf(stage).getRanks();
  if (std::optional<int64_t> parts = configInt(stage, "parts"); parts && parts != ranks)
    return stage.emitOpError() << "expected a part of each sum from each of " << ranks
                               << " ranks, but got " << *parts;
  return success();
}

// A rows stage: [branch and] stream, and the stream that comes of them.
static LogicalResult checkRows(StageOp stage) {
  size_t wanted = branchOf(stage) ? 2 : 1;
  size_t written = wanted - 1 + (normedOf(stage) ? 1 : 0);
  if (stage.getReads().size() != wanted || stage.getWrites().size() != written)
    return stage.emitOpError() << "expected " << wanted << " reads and " << written
                               << " writes of a rows stage whose branch_norm is '"
                               << configString(stage, "branch_norm") << "', but got "
                               << stage.getReads().size() << " and " << stage.getWrites().size();
  StringRef branch = configString(stage, "branch_norm");
  if ((branch == "rms" || branch == "input_scaled") && !configFloat(stage, "branch_eps"))
    return stage.emitOpError()
           << "expected config to hold 'branch_eps', since the branch is normed";
  return success();
}

LogicalResult checkStages(KernelOp kernel) {
  unsigned routers = 0;
  for (auto stage : kernel.getOps<StageOp>()) {
    if (failed(checkConfig(stage)))
      return failure();
    if (isGemv(stage) && failed(checkGemv(stage)))
      return failure();
    if (stage.getKind() == StageKind::Rows && failed(checkRows(stage)))
      return failure();
    if (stage.getKind() == StageKind::Combine && failed(checkCombine(stage)))
      return failure();
    if (pairsOf(stage) && failed(checkPairs(stage)))
      return failure();
    if (stage.getKind() == StageKind::TopK && ++routers > 1)
      return stage.emitOpError() << "expected one top_k stage a kernel: there is one routing table";
    bool isExpert = llvm::is_contained(
        {StageKind::ExpertUp, StageKind::ExpertDown, StageKind::Combine}, stage.getKind());
    isExpert |= pairsOf(stage) > 0;
    if (isExpert && !routers)
      return stage.emitOpError() << "expected a top_k stage before the experts";
    bool computes = stage.getKind() != StageKind::LaunchEnd;
    if (computes && !isGemv(stage) && stage.getReads().empty())
      return stage.emitOpError() << "expected the stage to read something";
  }
  return success();
}

} // namespace megalith::task
