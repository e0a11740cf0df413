//===- WorkloadTest.cpp - Simulated tiles are the device's ----------------===//
//
// What the simulation takes for attention's tiles, their pieces and whose they are, against the
// code that kernels run.
//
//===----------------------------------------------------------------------===//

#include "passes/simulate/Workload.h"

#include "codegen/device/attention_shape.cuh"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/FormatVariadic.h"

#include <catch2/catch.hpp>

using namespace megalith;

namespace {

template <int Rows, int QHeads, int KvHeads, int HeadDim, int Window> struct Shape {
  static constexpr int kRows = Rows, kQHeads = QHeads, kKvHeads = KvHeads, kHeadDim = HeadDim,
                       kWindow = Window, kSms = 132, kSequenceStride = (132 + Rows - 1) / Rows,
                       kMergeParts = 1;
  static constexpr bool kIsE4m3 = false;
  static constexpr int kRopeDim = 0;
};

/// Compares all that `contexts` gives, and tells how many splits its largest tile has.
template <class C> int64_t compare(std::vector<int64_t> contexts) {
  mlir::MLIRContext context;
  context.loadDialect<task::TaskDialect>();
  const std::string text =
      llvm::formatv("task.kernel @k \"toy\" target \"sm_90a\" sms 132 rows {0} smem 131072 {{\n"
                    "task.stage @attention attention reads [] writes [] config {{q_heads = {1}, "
                    "kv_heads = {2}, head_dim = {3}, window = {4}} {{}\n}",
                    C::kRows, C::kQHeads, C::kKvHeads, C::kHeadDim, C::kWindow)
          .str();
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  REQUIRE(module);
  auto facts = simulate::factsOf(*(*module).getOps<task::KernelOp>().begin(), {contexts}, 0);
  REQUIRE(bool(facts));
  StepDescriptor step = {};
  step.sequences = step.live_rows = int32_t(contexts.size());
  for (size_t s = 0; s < contexts.size(); ++s)
    step.seq[s] = {int32_t(s), 1, int32_t(contexts[s])};
  using S = AttentionShape<C>;
  CHECK(facts->pieceUnits == S::kPieceUnits);
  int64_t most = 0;
  for (int sm = 0; sm < 132; ++sm) {
    AttentionTiles<C> tiles(step, sm);
    size_t number = 0;
    for (AttentionTile tile = {}; tiles.next(tile); ++number) {
      INFO("SM " << sm << ", tile " << number);
      REQUIRE(number < facts->tiles[size_t(sm)].size());
      const simulate::Tile &own = facts->tiles[size_t(sm)][number];
      REQUIRE(own.sequence == tile.seq);
      REQUIRE(own.kvHead == tile.kv_head);
      REQUIRE(own.splits == tile.splits);
      REQUIRE(own.splitUnits == tile.split_units);
      REQUIRE(own.fullUnits == tile.full_units);
      REQUIRE(own.goesOn == tile.goes_on);
      REQUIRE(own.isNew == (tile.first_new() < tile.end));
      REQUIRE(own.hasOld == (tile.tail_units > 0 && tile.start > tile.tail_first()));
      REQUIRE(own.pieces(S::kPieceUnits) == full_pieces<C>(tile));
      most = std::max(most, own.splits);
      const int vectors = tile.rows * S::kGroup;
      for (int piece = 0; piece < full_pieces<C>(tile); ++piece) {
        const UnitRange range = piece_units<C>(tile, piece);
        const simulate::Units units = own.unitsOf(piece, S::kPieceUnits);
        REQUIRE(units.first == range.first);
        REQUIRE(units.end == range.end);
        for (int unit = range.first; unit < range.end; unit += 2)
          for (int warp = 0; warp < 8; ++warp) {
            const WarpShare share = tile.splits > 1 ? WarpShare::of_splits(tile, vectors, warp)
                                                    : WarpShare::of(vectors, vectors, warp);
            REQUIRE((warp / share.columns == own.chunkOf(unit, share.chunks)) ==
                    share.has_unit(unit));
          }
      }
    }
    CHECK(number == facts->tiles[size_t(sm)].size());
  }
  return most;
}

std::vector<int64_t> eight(int64_t context) {
  return std::vector<int64_t>(8, context);
}

} // namespace

TEST_CASE("tiles of attention, their pieces and warps are the device's", "[simulate]") {
  using Qwen = Shape<8, 32, 4, 128, 0>;
  CHECK(compare<Shape<1, 32, 4, 128, 0>>({8192}) == 1);
  CHECK(compare<Qwen>(eight(0)) == 1);
  CHECK(compare<Qwen>(eight(129)) == 3); // of nine splits an SM has two or three
  CHECK(compare<Qwen>(eight(2048)) == 2);
  CHECK(compare<Qwen>(eight(8192)) == 1); // longer splits: one a tile
  CHECK(compare<Qwen>({129, 2048, 77, 8192, 1}) == 1);
  CHECK(compare<Qwen>({600, 700, 640, 655, 690, 610, 601, 699}) > 1); // uneven, but nearly alike
  CHECK(compare<Shape<16, 16, 2, 128, 512>>(std::vector<int64_t>(16, 8192)) > 1);
  CHECK(compare<Shape<8, 48, 4, 64, 0>>(eight(500)) == 1); // two column tiles
}
