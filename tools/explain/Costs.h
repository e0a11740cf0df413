//===- Costs.h - which measured cost a stage or an exchange has --*- C++ -*-===//
#ifndef MEGALITH_TOOLS_EXPLAIN_COSTS_H
#define MEGALITH_TOOLS_EXPLAIN_COSTS_H

#include "passes/costs/CostTable.h"
#include "tools/explain/Facts.h"

#include <optional>

namespace megalith::explain {

/// Times of one target's machine. Every answer names the entry of the table that it comes from;
/// where the table has none that fits there is no answer.
class Costs {
public:
  /// `table` may be null.
  explicit Costs(const costs::CostTable *table) : table(table) {}

  /// `bytes` read from memory at the best rate measured.
  std::optional<Estimate> read(double bytes) const;
  /// The same by `sms` SMs that have `window` copies of `piece` bytes under way each.
  std::optional<Estimate> read(double bytes, int64_t piece, int64_t window, int64_t sms) const;
  /// E of an exchange of which an SM polls `bytes`, while its stream has `inFlight` bytes under
  /// way; by eight consumer warps, each its part, or one polling warp.
  std::optional<Estimate> hop(int64_t bytes, int64_t inFlight, bool byConsumers) const;
  /// Of the router's logits, and of attention's partial results.
  std::optional<Estimate> logits() const;
  std::optional<Estimate> merge() const;

private:
  std::optional<Estimate> entry(const std::string &name, double perUs) const;

  const costs::CostTable *table;
};

} // namespace megalith::explain

#endif // MEGALITH_TOOLS_EXPLAIN_COSTS_H
