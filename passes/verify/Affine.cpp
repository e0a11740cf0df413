#include "passes/verify/Affine.h"

#include <algorithm>
#include <cstdint>

using namespace mlir;
using namespace megalith::verify;

using Wide = __int128;

static int64_t clamped(Wide value) {
  return static_cast<int64_t>(std::clamp<Wide>(value, INT64_MIN, INT64_MAX));
}

/// Collects `scale` times the expression; false if it is not linear.
static bool collect(AffineExpr expr, Wide scale, Wide &constant,
                    SmallVectorImpl<Wide> &coefficients) {
  if (auto leaf = dyn_cast<AffineConstantExpr>(expr)) {
    constant += scale * leaf.getValue();
    return true;
  }
  if (auto dim = dyn_cast<AffineDimExpr>(expr)) {
    if (dim.getPosition() < coefficients.size())
      coefficients[dim.getPosition()] += scale;
    return true;
  }
  auto binary = dyn_cast<AffineBinaryOpExpr>(expr);
  if (!binary)
    return false;
  if (expr.getKind() == AffineExprKind::Add)
    return collect(binary.getLHS(), scale, constant, coefficients) &&
           collect(binary.getRHS(), scale, constant, coefficients);
  auto factor = dyn_cast<AffineConstantExpr>(binary.getRHS());
  if (expr.getKind() != AffineExprKind::Mul || !factor)
    return false;
  const Wide next = scale * factor.getValue();
  return next == clamped(next) && collect(binary.getLHS(), next, constant, coefficients);
}

Affine::Affine(AffineExpr expr, unsigned depth) : depth(depth) {
  SmallVector<Wide> coefficients(depth, 0);
  Wide sum = 0;
  bool isLinear = collect(expr, 1, sum, coefficients) && sum == clamped(sum);
  for (auto [dim, coefficient] : llvm::enumerate(coefficients)) {
    isLinear &= coefficient == clamped(coefficient);
    if (coefficient != 0)
      terms.push_back({static_cast<unsigned>(dim), clamped(coefficient)});
  }
  constant = clamped(sum);
  if (!isLinear) {
    terms.clear();
    tree = expr;
  }
  for (unsigned dim = 0; dim < depth; ++dim)
    if (isLinear ? coefficients[dim] != 0 : expr.isFunctionOfDim(dim))
      usedDims |= uint64_t(1) << std::min(dim, 63u);
}

static int64_t evalTree(AffineExpr expr, ArrayRef<int64_t> dims) {
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return constant.getValue();
  if (auto dim = dyn_cast<AffineDimExpr>(expr))
    return dim.getPosition() < dims.size() ? dims[dim.getPosition()] : 0;
  auto binary = cast<AffineBinaryOpExpr>(expr);
  const Wide lhs = evalTree(binary.getLHS(), dims), rhs = evalTree(binary.getRHS(), dims);
  auto floorDiv = [&] { return lhs / rhs - (lhs % rhs != 0 && (lhs < 0) != (rhs < 0)); };
  switch (expr.getKind()) {
  case AffineExprKind::Add:
    return clamped(lhs + rhs);
  case AffineExprKind::Mul:
    return clamped(lhs * rhs);
  case AffineExprKind::Mod:
    return rhs ? clamped(((lhs % rhs) + rhs) % rhs) : 0;
  case AffineExprKind::FloorDiv:
    return rhs ? clamped(floorDiv()) : 0;
  case AffineExprKind::CeilDiv:
    return rhs ? clamped(floorDiv() + (lhs % rhs != 0)) : 0;
  default:
    llvm_unreachable("maps of the task dialect have no symbols");
  }
}

int64_t Affine::evalAt(const int64_t *dims) const {
  if (tree)
    return evalTree(tree, ArrayRef(dims, depth));
  // Loop indices stay below the limit of steps: 128 bits hold every sum.
  Wide sum = constant;
  for (const Term &term : terms)
    sum += Wide(term.coefficient) * dims[term.dim];
  return clamped(sum);
}

int64_t Affine::coefficient(unsigned dim) const {
  for (const Term &term : terms)
    if (term.dim == dim)
      return term.coefficient;
  return 0;
}

bool Affine::usesAny(unsigned begin, unsigned end) const {
  for (unsigned dim = begin; dim < end; ++dim)
    if (uses(dim))
      return true;
  return false;
}

int64_t megalith::verify::evalLeast(ArrayRef<Affine> exprs, const int64_t *dims) {
  int64_t least = INT64_MAX;
  for (const Affine &expr : exprs)
    least = std::min(least, expr.eval(dims));
  return std::max<int64_t>(least, 0);
}

SmallVector<Affine, 2> megalith::verify::affinesOf(AffineMap map, unsigned depth) {
  SmallVector<Affine, 2> results;
  for (AffineExpr expr : map.getResults())
    results.emplace_back(expr, depth);
  return results;
}
