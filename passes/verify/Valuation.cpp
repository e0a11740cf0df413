#include "passes/verify/Valuation.h"

using namespace megalith;
using namespace megalith::verify;

Valuation::Symbol::Symbol(task::SymbolOp op)
    : min(op.getMin()), max(op.getMax()), isPerSm(op.getPerSm()),
      name(op.getSymName().begin(), op.getSymName().end()) {}

int64_t Valuation::of(const Symbol &symbol, llvm::ArrayRef<int64_t> dims, int launch) const {
  if (isLargest)
    return symbol.max;
  // splitmix64 over the name and the indices: the same on every run, unlike llvm::hash_value.
  uint64_t state = seed;
  auto mix = [&](uint64_t value) {
    state += value + 0x9e3779b97f4a7c15ull;
    state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9ull;
    state = (state ^ (state >> 27)) * 0x94d049bb133111ebull;
    state ^= state >> 31;
  };
  // Dimension 0 is the SM: left out for values that all SMs share. Which kind an SM is does not
  // depend on the symbol, so SMs of a kind agree in all of them.
  uint64_t kind = static_cast<uint64_t>(dims.front());
  if (symbol.isPerSm && kinds < INT64_MAX) {
    mix(kind);
    kind = state % static_cast<uint64_t>(kinds);
    state = seed;
  }
  for (unsigned char c : symbol.name)
    mix(c);
  if (symbol.isPerSm)
    mix(kind);
  for (int64_t index : dims.drop_front())
    mix(static_cast<uint64_t>(index));
  if (launch)
    mix(~static_cast<uint64_t>(launch));
  const uint64_t span = static_cast<uint64_t>(symbol.max) - static_cast<uint64_t>(symbol.min) + 1;
  return static_cast<int64_t>(static_cast<uint64_t>(symbol.min) + state % span);
}
