//===- Prices.h - What a step of a role region costs -------------*- C++ -*-===//
#ifndef MEGALITH_PASSES_SIMULATE_PRICES_H
#define MEGALITH_PASSES_SIMULATE_PRICES_H

#include "passes/simulate/Costs.h"
#include "passes/simulate/Workload.h"
#include "passes/verify/Program.h"

#include "llvm/ADT/DenseMap.h"

#include <array>
#include <optional>
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

  /// Of instruction `at` of a role, within the attention tile `tile` if it is in one.
  const Price &of(int role, uint32_t at, const Tile *tile) const;
  /// What comes before a loop over the step's tiles, once in a launch: the step's descriptor is
  /// read, and what the tiles have in common. `at`: where the loop begins.
  double opening(int role, uint32_t at) const { return prices[size_t(role)][at].usual.first; }
  /// The list's next tile or its end; the first time what the descriptor says is not in the SM's
  /// cache any more.
  const Price &nextTile(int role, uint32_t at) const { return prices[size_t(role)][at].fresh; }
  /// What a consumer makes of a poll's words when they are there; of most polls nothing.
  const Price &afterPoll(int role, uint32_t at) const { return prices[size_t(role)][at].usual; }
  /// Whether warps do it for rows, warp r for rows r, r + 8, ...
  bool isByRow(int role, uint32_t at) const { return prices[size_t(role)][at].byRow; }
  /// Whether a piece of attention, which one chunk's warps compute.
  bool isPiece(int role, uint32_t at) const { return prices[size_t(role)][at].piece; }
  /// What such a piece costs the warps that do not compute it, in a tile of `splits`.
  double passing(int role, uint32_t at, int64_t splits) const {
    return prices[size_t(role)][at].bySplits[size_t(splits - 1)].warm;
  }

  /// Of a merge tile, what each of its splits costs besides.
  double perSplit(int role, uint32_t at) const { return prices[size_t(role)][at].perSplit; }

  const std::set<std::string> &unknown() const { return unknownNames; }
  /// Device functions that the table has no part for, taken to cost what a like one does.
  const std::set<std::string> &estimated() const { return estimatedNames; }

private:
  static constexpr int64_t kMostSplits = 8; ///< of an attention tile
  struct Entry {
    Price usual, fresh;                      ///< fresh: of a tile with the step's new position
    std::optional<Price> old;                ///< fresh, where older positions are brought from HBM
    std::optional<Price> onward;             ///< of one that goes on with the tile before's queries
    std::array<Price, kMostSplits> bySplits; ///< of a tile of so many and one
    bool dependsOnSplits = false;            ///< and not on the new position
    bool byRow = false, piece = false;
    double perSplit = 0;
  };
  void setBySplits(Entry &entry, const Costs &costs, llvm::StringRef part, Heat heat) const;
  Entry price(const verify::Instr &instr, task::StageOp stage, const Costs &costs, Heat heat);
  void findNvfp4(const verify::Program &program);
  Price productPrice(task::StageOp stage, const Costs &costs, Heat heat) const;
  Entry opening(const verify::Program &program, const verify::Instr &instr, task::StageOp stage,
                int role, const Costs &costs, Heat heat) const;

  int64_t rows;
  llvm::DenseMap<mlir::Operation *, int64_t> nvfp4Pieces; ///< bytes of one, by stage
  std::array<std::vector<Entry>, verify::kRoles> prices;
  std::set<std::string> unknownNames, estimatedNames;
};

} // namespace megalith::simulate

#endif // MEGALITH_PASSES_SIMULATE_PRICES_H
