// moe-bound-scores: a bound on attention scores from constants alone.
#include "passes/graph/GraphPasses.h"

#include <cmath>
#include <optional>

namespace megalith {
#define GEN_PASS_DEF_BOUNDSCORES
#include "passes/graph/GraphPasses.h.inc"
} // namespace megalith

using namespace mlir;
using namespace megalith;

namespace {

// Half a unit in the last place, relative: what rounding can add to a vector's length. Of e4m3
// below 2^-6 it is absolute: half of 2^-9.
constexpr double kBf16 = 0x1p-8, kE4m3 = 0x1p-4, kE4m3Least = 0x1p-10;
// All fp32 arithmetic between a vector's norm and its score, generously.
constexpr double kF32 = 0x1p-16;
// Exponents that sums of exp(score) may reach; fp32 has 127, the rest is for the values.
constexpr double kMostBits = 96;

double rounding(Type type) {
  Type element = getElementTypeOrSelf(type);
  if (element.isBF16())
    return 1 + kBf16;
  assert(element.isF32());
  return 1;
}

/// The largest length of a vector of `dim` numbers, at most `length` long, once it is in the cache.
double cachedLength(double length, moe::KVType cache, bool isScaled) {
  if (!isa<Float8E4M3FNType>(cache.getElement()))
    return length;
  // By another scale than 1, anything may be below 2^-6: but nothing is rounded to more than twice
  // itself.
  return isScaled ? 2 * length
                  : length * (1 + kE4m3) + kE4m3Least * std::sqrt(double(cache.getHeadDim()));
}

/// The largest length of a head's vector in `value`, if constants bound it.
std::optional<double> headLength(Value value) {
  Operation *op = value.getDefiningOp();
  if (auto rope = dyn_cast_if_present<moe::RopeOp>(op)) {
    // A rotation keeps lengths; scaled rotations also stretch.
    if (rope.getScaling())
      return std::nullopt;
    std::optional<double> before = headLength(value == rope.getQOut() ? rope.getQ() : rope.getK());
    return before ? std::optional(*before * rounding(value.getType())) : std::nullopt;
  }
  if (auto cast = dyn_cast_if_present<moe::CastOp>(op)) {
    std::optional<double> before = headLength(cast.getInput());
    return before ? std::optional(*before * rounding(value.getType())) : std::nullopt;
  }
  auto norm = dyn_cast_if_present<moe::QkNormOp>(op);
  if (!norm || norm.getKind() != moe::NormKind::RmsWeightless)
    return std::nullopt;
  // n channels share a mean square of at most one; a head has at most all of it.
  int64_t row = cast<RankedTensorType>(value.getType()).getDimSize(1);
  double n = norm.getOver() == moe::NormOver::Head ? norm.getHeadDim() : row;
  double scale = value == norm.getQOut() ? norm.getQScale() : 1.0;
  return std::sqrt(n) * scale * rounding(value.getType());
}

/// The largest length of a head's key that the cache may hold: all come from the append before it,
/// now or in earlier steps.
std::optional<double> keyLength(Value kv) {
  auto append = kv.getDefiningOp<moe::KvAppendOp>();
  if (!append)
    return std::nullopt;
  std::optional<double> length = headLength(append.getK());
  if (!length)
    return std::nullopt;
  moe::KVType cache = append.getKv().getType();
  if (cache.getElement().isBF16() && !append.getK().getType().getElementType().isBF16())
    *length *= rounding(cache.getElement());
  return cachedLength(*length, cache, bool(append.getKScaleAttr()));
}

class BoundScores : public megalith::impl::BoundScoresBase<BoundScores> {
  void runOnOperation() override {
    getOperation().walk([](moe::AttentionOp op) {
      if (std::optional<double> bound = boundOf(op))
        op.setScoreBound(*bound);
    });
  }

  static std::optional<double> boundOf(moe::AttentionOp op) {
    if (op.getSinks())
      return std::nullopt;
    std::optional<double> q = headLength(op.getQ()), k = keyLength(op.getKv());
    if (!q || !k)
      return std::nullopt;
    double bound = *q * *k * op.getScale() * (1 + kF32);
    double bits = bound / std::log(2.0);
    double keys = std::log2(static_cast<double>(op.getKv().getType().getPositions()));
    if (bits + keys > kMostBits)
      return std::nullopt;
    return bound;
  }
};

} // namespace
