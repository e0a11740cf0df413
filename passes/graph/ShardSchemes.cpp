// Ways to cut a model over ranks, and what they cost.
#include "passes/graph/ShardSchemes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <numeric>

using namespace mlir;

namespace megalith {

namespace {
constexpr std::pair<ShardScheme::Experts, StringLiteral> kExperts[] = {
    {ShardScheme::Experts::NN, "nn"},
    {ShardScheme::Experts::NNSums, "nn-sums"},
    {ShardScheme::Experts::NK, "nk"}};
constexpr std::pair<ShardScheme::OutputProjection, StringLiteral> kOutputs[] = {
    {ShardScheme::OutputProjection::N, "n"},
    {ShardScheme::OutputProjection::KOrdered, "k-ordered"},
    {ShardScheme::OutputProjection::K, "k"}};

template <class T, size_t N>
std::optional<T> parse(const std::pair<T, StringLiteral> (&names)[N], StringRef word) {
  for (const auto &[value, name] : names)
    if (name == word)
      return value;
  return std::nullopt;
}

template <class T, size_t N>
StringRef nameOf(const std::pair<T, StringLiteral> (&names)[N], T value) {
  for (const auto &[other, name] : names)
    if (other == value)
      return name;
  llvm_unreachable("every value has a name");
}

/// Bytes of a value.
int64_t bytesOf(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  if (auto format = dyn_cast<moe::BlockFormatType>(type.getElementType()))
    return format.getBytes(type.getDimSize(0), type.getDimSize(1));
  return type.getNumElements() * type.getElementTypeBitWidth() / 8;
}

double timeOf(int64_t bytes, int64_t stops) {
  return double(stops) * kHopMicroseconds + double(bytes) / kGatherBytesPerMicrosecond;
}

/// "mlp.experts.down": where the exchanged value was made, without what all layers have in front.
std::string placeOf(Operation *op) {
  Location loc = op->getLoc();
  if (auto name = dyn_cast<NameLoc>(loc)) {
    StringRef text = name.getName().getValue();
    text.consume_front("layer.");
    return text.str();
  }
  Operation *source = op->getOperand(0).getDefiningOp();
  return (source ? source : op)->getName().stripDialect().str();
}

ExchangeCost costOf(moe::AllGatherOp op) {
  return {"all_gather " + placeOf(op), (op.getRanks() - 1) * bytesOf(op.getInput()), 1};
}

ExchangeCost costOf(moe::AllReduceOp op) {
  const int64_t ranks = op.getRanks(), in = bytesOf(op.getInput()), out = bytesOf(op.getResult());
  const int64_t once = (ranks - 1) * in,
                twice = (ranks - 1) * in / ranks + (ranks - 1) * out / ranks;
  if (timeOf(once, 1) <= timeOf(twice, 2))
    return {"all_reduce (one shot) " + placeOf(op), once, 1};
  return {"all_reduce (two shots) " + placeOf(op), twice, 2};
}

} // namespace

std::string ShardScheme::str() const {
  return ("experts " + nameOf(kExperts, experts) + ", o_proj " + nameOf(kOutputs, outputProjection))
      .str();
}

std::optional<ShardScheme::Experts> parseExperts(StringRef word) {
  return parse(kExperts, word);
}

std::optional<ShardScheme::OutputProjection> parseOutputProjection(StringRef word) {
  return parse(kOutputs, word);
}

int64_t LayerCost::bytes() const {
  return std::accumulate(exchanges.begin(), exchanges.end(), int64_t(0),
                         [](int64_t sum, const ExchangeCost &e) { return sum + e.bytes; });
}

int64_t LayerCost::stops() const {
  return std::accumulate(exchanges.begin(), exchanges.end(), int64_t(0),
                         [](int64_t sum, const ExchangeCost &e) { return sum + e.stops; });
}

double LayerCost::microseconds() const {
  return std::accumulate(exchanges.begin(), exchanges.end(), 0.0,
                         [](double sum, const ExchangeCost &e) { return sum + e.microseconds; });
}

double SchemeCost::microseconds() const {
  return std::accumulate(layers.begin(), layers.end(), 0.0, [](double sum, const LayerCost &l) {
    return sum + double(l.layers) * l.microseconds();
  });
}

std::vector<LayerCost> layerCosts(ModuleOp sharded) {
  std::vector<LayerCost> costs;
  for (moe::StepOp step : sharded.getOps<moe::StepOp>())
    for (int64_t l = 0; l < step.getNumLayers(); ++l) {
      StringRef kind = step.getLayer(l).getValue();
      auto known = llvm::find_if(costs, [&](const LayerCost &c) { return c.kind == kind; });
      if (known != costs.end()) {
        ++known->layers;
        continue;
      }
      LayerCost &cost = costs.emplace_back();
      cost.kind = kind.str();
      cost.layers = 1;
      auto function = sharded.lookupSymbol<func::FuncOp>(kind);
      int64_t rows = cast<RankedTensorType>(function.getArgumentTypes().front()).getDimSize(0);
      auto add = [&](ExchangeCost exchange) {
        exchange.microseconds = timeOf(exchange.bytes, exchange.stops);
        exchange.bytes /= rows;
        cost.exchanges.push_back(std::move(exchange));
      };
      function.walk([&](Operation *op) {
        if (auto gather = dyn_cast<moe::AllGatherOp>(op))
          add(costOf(gather));
        else if (auto reduce = dyn_cast<moe::AllReduceOp>(op))
          add(costOf(reduce));
      });
    }
  return costs;
}

std::vector<SchemeCost> compareSchemes(ModuleOp module, int64_t ranks,
                                       llvm::function_ref<bool(const ShardScheme &)> allowed,
                                       bool bf16Sums) {
  std::vector<SchemeCost> costs;
  for (const auto &[experts, expertsName] : kExperts)
    for (const auto &[output, outputName] : kOutputs) {
      const ShardScheme scheme = {experts, output, bf16Sums};
      if (!allowed(scheme))
        continue;
      // What a scheme cannot do is no error while there are others.
      ScopedDiagnosticHandler quiet(module.getContext(), [](Diagnostic &) { return success(); });
      OwningOpRef<ModuleOp> trial = module.clone();
      if (succeeded(shardModule(*trial, ranks, scheme)))
        costs.push_back({scheme, layerCosts(*trial)});
    }
  llvm::stable_sort(costs, [](const SchemeCost &a, const SchemeCost &b) {
    return a.microseconds() < b.microseconds();
  });
  return costs;
}

std::string describe(ArrayRef<SchemeCost> schemes, int64_t ranks) {
  std::string text;
  llvm::raw_string_ostream os(text);
  if (schemes.empty())
    return text;
  os << llvm::formatv("{0} ranks: what a rank receives for a row, and stops, per layer\n", ranks);
  for (const LayerCost &kind : schemes.front().layers) {
    os << llvm::formatv("@{0}, {1} layer(s)\n", kind.kind, kind.layers);
    for (const SchemeCost &scheme : schemes)
      for (const LayerCost &layer : scheme.layers)
        if (layer.kind == kind.kind)
          os << llvm::formatv("  {0,-36} {1,9} bytes  {2} stops  {3,6:F2} us\n",
                              scheme.scheme.str(), layer.bytes(), layer.stops(),
                              layer.microseconds());
    os << "  the first in detail\n";
    for (const ExchangeCost &exchange : kind.exchanges)
      os << llvm::formatv("    {0,-48} {1,9} bytes  {2} stop(s)\n", exchange.what, exchange.bytes,
                          exchange.stops);
  }
  return text;
}

} // namespace megalith
