#include "passes/verify/Program.h"

#include "llvm/ADT/Hashing.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace megalith;
using namespace megalith::task;
using namespace megalith::verify;

int64_t Valuation::of(SymbolOp symbol, ArrayRef<int64_t> dims) const {
  if (isLargestCase)
    return symbol.getMax();
  // Dimension 0 is the SM: left out for values that all SMs share.
  ArrayRef<int64_t> relevant = symbol.getPerSm() ? dims : dims.drop_front(dims.empty() ? 0 : 1);
  // splitmix64 over the name and the indices: the same on every run, unlike llvm::hash_value.
  uint64_t state = seed;
  auto mix = [&](uint64_t value) {
    state += value + 0x9e3779b97f4a7c15ull;
    state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9ull;
    state = (state ^ (state >> 27)) * 0x94d049bb133111ebull;
    state ^= state >> 31;
  };
  for (char c : symbol.getSymName())
    mix(static_cast<unsigned char>(c));
  for (int64_t index : relevant)
    mix(static_cast<uint64_t>(index));
  int64_t span = symbol.getMax() - symbol.getMin() + 1;
  return symbol.getMin() + static_cast<int64_t>(state % static_cast<uint64_t>(span));
}

static int64_t tripsOf(ForOp loop, KernelOp kernel, ArrayRef<int64_t> dims,
                       const Valuation &valuation) {
  TripsAttr trips = loop.getTrips();
  if (FlatSymbolRefAttr ref = trips.getSymbol()) {
    auto symbol = kernel.lookup<SymbolOp>(ref);
    return symbol ? valuation.of(symbol, dims) : 0;
  }
  return evalMin(trips.getMap().getValue(), dims);
}

static void unrollBlock(Block &block, KernelOp kernel, SmallVectorImpl<int64_t> &dims,
                        const Valuation &valuation, std::vector<Step> &steps) {
  for (Operation &op : block) {
    if (steps.size() >= kMaxSteps)
      return;
    if (auto loop = dyn_cast<ForOp>(op)) {
      int64_t trips = tripsOf(loop, kernel, dims, valuation);
      dims.push_back(0);
      // Without steps inside, trips count for nothing but time.
      if (loop.getBody().front().empty())
        trips = 0;
      for (int64_t i = 0; i < trips && steps.size() < kMaxSteps; ++i) {
        dims.back() = i;
        unrollBlock(loop.getBody().front(), kernel, dims, valuation, steps);
      }
      dims.pop_back();
    } else if (!isa<LocalOp>(op)) {
      steps.push_back({&op, SmallVector<int64_t, 4>(dims.begin(), dims.end())});
    }
  }
}

std::vector<Step> verify::unroll(KernelOp kernel, Role role, int64_t sm,
                                 const Valuation &valuation) {
  std::vector<Step> steps;
  SmallVector<int64_t> dims = {sm};
  for (StageOp stage : kernel.getOps<StageOp>()) {
    RoleOp region = stage.role(role);
    if (region && sm < stage.getSms().value_or(kernel.getSms()))
      unrollBlock(region.getBody().front(), kernel, dims, valuation, steps);
  }
  return steps;
}

Rect verify::rectOf(AccessAttr access, ArrayRef<int64_t> dims) {
  auto at = evalAll(access.getAt().getValue(), dims);
  return {at[at.size() - 2], access.getRows(), at.back(),
          evalMin(access.getCols().getValue(), dims)};
}

std::string verify::describe(const Rect &rect) {
  return "rows [" + std::to_string(rect.row) + ", " + std::to_string(rect.row + rect.rows) +
         ") columns [" + std::to_string(rect.col) + ", " + std::to_string(rect.col + rect.cols) +
         ")";
}
