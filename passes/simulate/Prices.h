//===- Prices.h - What a step of a role region costs -------------*- C++ -*-===//
#ifndef MEGALITH_PASSES_SIMULATE_PRICES_H
#define MEGALITH_PASSES_SIMULATE_PRICES_H

#include "passes/simulate/Costs.h"
#include "passes/simulate/Workload.h"
#include "passes/verify/Program.h"

#include <set>
#include <string>
#include <vector>

namespace megalith::simulate {

/// Of one device function in one stage, by what it depends on.
struct Price {
  double warm = 0, first = 0; ///< first: the first time that a warp comes to it in a launch
  bool meets = false;         ///< all eight consumer warps begin together
};

/// The prices of a kernel's `compute` steps.
class Prices {
public:
  Prices(const verify::Program &program, const Costs &costs, Heat heat);

  /// Of instruction `at` of a role, for warp `warp` of it; `fresh`: the attention tile has the
  /// step's new position; `isOwn`: the piece is this warp's to compute.
  const Price &of(int role, uint32_t at) const { return prices[size_t(role)][at].usual; }
  const Price &fresh(int role, uint32_t at) const { return prices[size_t(role)][at].fresh; }
  /// Whether only the first `rows` warps of the role do it, one a row.
  bool isByRow(int role, uint32_t at) const { return prices[size_t(role)][at].byRow; }
  /// Whether a piece of attention, which one chunk's warps compute.
  bool isPiece(int role, uint32_t at) const { return prices[size_t(role)][at].piece; }

  const std::set<std::string> &unknown() const { return unknownNames; }
  /// Device functions that the table has no part for, taken to cost what a like one does.
  const std::set<std::string> &estimated() const { return estimatedNames; }

private:
  struct Entry {
    Price usual, fresh;
    bool byRow = false, piece = false;
  };
  Entry price(const verify::Instr &instr, task::StageOp stage, const Costs &costs, Heat heat);

  int64_t rows;
  std::array<std::vector<Entry>, verify::kRoles> prices;
  std::set<std::string> unknownNames, estimatedNames;
};

} // namespace megalith::simulate

#endif // MEGALITH_PASSES_SIMULATE_PRICES_H
