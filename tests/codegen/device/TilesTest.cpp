//===- TilesTest.cpp - Attention and merge tiles of a step ----------------===//

#include "codegen/device/tiles.cuh"
#include "codegen/device/attention_shape.cuh"
#include "codegen/device/cta.cuh"
#include "passes/bounds/Bounds.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <tuple>
#include <vector>

using namespace megalith;

namespace {

struct Shape {
  static constexpr int kRows = 8, kQHeads = 12, kKvHeads = 3, kHeadDim = 64, kSms = 7;
  static constexpr int kSequenceStride = 5, kMergeParts = 2;
};

struct Length {
  int start, rows;
};

StepDescriptor makeStep(const std::vector<Length> &lengths) {
  StepDescriptor step = {};
  for (int &seq : step.row_seq)
    seq = -1;
  for (const Length &length : lengths) {
    step.seq[step.sequences] = {step.live_rows, length.rows, length.start};
    for (int r = 0; r < length.rows; ++r)
      step.row_seq[step.live_rows++] = step.sequences;
    ++step.sequences;
  }
  return step;
}

} // namespace

TEST_CASE("pieces are whole units and at most 32") {
  for (int n = 1; n < 5000; ++n) {
    const int length = split_length(n), count = split_count(n);
    REQUIRE(length % 16 == 0);
    REQUIRE(length == 16 * (((n + 15) / 16 + 31) / 32));
    REQUIRE((count >= 1 && count <= 32));
    REQUIRE((length * count >= n && length * (count - 1) < n));
  }
}

TEST_CASE("each position of each sequence and KV head is in one tile, in its SM's order") {
  const std::vector<std::vector<Length>> steps = {
      {{0, 1}},
      {{700, 1}, {15, 2}, {0, 3}, {513, 2}},
      {{511, 8}},
      {{505, 8}},
      {{1007, 4}, {16, 4}},
      {{31, 1}, {32, 1}, {33, 1}, {47, 1}, {48, 1}, {63, 1}, {64, 1}, {65, 1}},
      {{600, 2}, {512, 1}, {513, 1}, {700, 1}}, // neighbours, several splits to a tile
      {{2100, 1}, {1990, 1}, {2047, 1}},
      {{4000, 4}, {3900, 4}}, // neighbours, several column tiles: one split to a tile
      {{5000, 1}, {4990, 1}}, // long splits are dealt out
  };
  int neighbours = 0, together = 0;
  for (const auto &lengths : steps) {
    const StepDescriptor step = makeStep(lengths);
    int total = 0, least = 0, most = 0;
    for (const Length &length : lengths) {
      const int each = split_length(length.start + length.rows);
      total += Shape::kKvHeads * split_count(length.start + length.rows);
      least = least == 0 ? each : std::min(least, each);
      most = std::max(most, each);
    }
    const bool is_numbered = total > Shape::kSms && 2 * most <= 3 * least && most <= 128;
    int number = 0;                                          // of the first split of the next tile
    std::map<std::tuple<int, int>, std::vector<int>> owners; // (seq, head): tiles of a position
    for (size_t s = 0; s < lengths.size(); ++s)
      for (int h = 0; h < Shape::kKvHeads; ++h)
        owners[{int(s), h}].resize(lengths[s].start + lengths[s].rows);
    for (int sm = 0; sm < Shape::kSms; ++sm) {
      AttentionTiles<Shape> tiles(step, sm);
      const int count = tiles.count();
      int visited = 0;
      AttentionTile tile, last = {};
      last.seq = -1;
      while (tiles.next(tile)) {
        ++visited;
        REQUIRE(tile.goes_on == (tile.seq == last.seq && tile.kv_head == last.kv_head));
        if (is_numbered) {
          REQUIRE((number >= sm * total / Shape::kSms &&
                   number + tile.splits <= (sm + 1) * total / Shape::kSms));
          number += tile.splits;
          neighbours += tile.goes_on;
          together += tile.splits > 1;
        } else {
          REQUIRE(tile.splits == 1);
          REQUIRE(std::tuple(last.seq, last.split, last.kv_head) <
                  std::tuple(tile.seq, tile.split, tile.kv_head));
          const int u = tile.split * Shape::kKvHeads + tile.kv_head;
          REQUIRE((u + tile.seq * Shape::kSequenceStride) % Shape::kSms == sm);
        }
        const Length &length = lengths[tile.seq];
        REQUIRE((tile.start == length.start && tile.rows == length.rows));
        REQUIRE(tile.first_row == step.seq[tile.seq].first_row);
        // Ring units are full and old; the tail is short and reaches the end.
        REQUIRE((tile.full_units == 0 || tile.tail_first() <= length.start));
        REQUIRE((tile.tail_units >= 0 && tile.tail_units <= 2));
        REQUIRE(tile.tail_first() + 16 * tile.tail_units >= tile.end);
        REQUIRE(tile.tail_first() + 16 * (tile.tail_units - 1) < tile.end);
        // New positions lie in the tail.
        REQUIRE((tile.first_new() >= tile.end || tile.first_new() >= tile.tail_first()));
        REQUIRE(tile.end - tile.first > 16 * tile.split_units * (tile.splits - 1));
        REQUIRE(tile.end - tile.first <= 16 * tile.split_units * tile.splits);
        for (int p = tile.first; p < tile.end; ++p)
          ++owners[{tile.seq, tile.kv_head}].at(p);
        last = tile;
      }
      CHECK(visited == count);
      CHECK_FALSE(tiles.next(tile));
    }
    for (const auto &[key, positions] : owners)
      for (int times : positions)
        REQUIRE(times == 1);
  }
  CHECK((neighbours > 0 && together > 0));
}

namespace {

template <int Rows, int Sms> struct Kernel { static constexpr int kRows = Rows, kSms = Sms; };

template <int Rows, int QHeads, int KvHeads, int HeadDim, int Sms, int Window = 0,
          int HeadRanks = 1, KvFormat Format = KvFormat::bf16>
using Stage = Attention<Kernel<Rows, Sms>, (Sms + Rows - 1) / Rows, QHeads, KvHeads, HeadDim, 0, 1,
                        QkNorm::none, 0.0f, 1.0f, 0, -1, -1, -1, HeadRanks, Window, false, Format>;

/// A step of at most `rows` rows in sequences that end within `positions`, of one length or of
/// many.
StepDescriptor drawStep(std::mt19937 &random, int rows, int positions) {
  auto below = [&](int n) { return static_cast<int>(random() % std::max(1, n)); };
  const int kind = below(4), about = below(positions);
  std::vector<Length> lengths;
  for (int left = rows; left > 0;) {
    const int count = kind == 1 ? 1 : 1 + below(left), most = positions - count;
    int start = most; // the longest
    if (kind == 0)
      start = below(most);
    else if (kind == 1)
      start = about + below(64);
    else if (kind == 3)
      start = below(2000);
    lengths.push_back({std::clamp(start, 0, most), count});
    left -= count;
    if (kind != 1 && below(3) == 0)
      break;
  }
  return makeStep(lengths);
}

/// Counts tiles and pieces of drawn steps and of the largest one on drawn SMs, and holds them to
/// the bounds that kernels declare and the prover takes for all cases.
template <class C> void checkBounds(int positions) {
  const task::AttentionShape shape = {.rows = C::kRows,
                                      .sms = C::kSms,
                                      .kvHeads = C::kKvHeads,
                                      .positions = positions,
                                      .window = C::kWindow,
                                      .pieceUnits = AttentionShape<C>::kPieceUnits};
  std::mt19937 random(1);
  int64_t tiles = 0, pieces = 0;
  auto look = [&](const StepDescriptor &step, int sm) {
    AttentionTiles<C> list(step, sm);
    tiles = std::max<int64_t>(tiles, list.count());
    for (AttentionTile tile = {}; list.next(tile);)
      pieces = std::max<int64_t>(pieces, full_pieces<C>(tile));
  };
  for (int i = 0; i < 1000; ++i) {
    const StepDescriptor step = drawStep(random, C::kRows, positions);
    for (int k = 0; k < 4; ++k)
      look(step, static_cast<int>(random() % C::kSms));
  }
  // Sequences of a row each, all of as many splits as there are.
  const StepDescriptor longest = makeStep(std::vector<Length>(C::kRows, Length{positions - 1, 1}));
  for (int sm = 0; sm < C::kSms; ++sm)
    look(longest, sm);
  INFO("rows " << C::kRows << ", SMs " << C::kSms << ", window " << C::kWindow << ": " << tiles
               << " of " << shape.tiles() << " tiles, " << pieces << " of " << shape.pieces()
               << " pieces");
  CHECK(tiles <= shape.tiles());
  CHECK(pieces <= shape.pieces());
  CHECK(pieces > 0);
  // Not far beyond, where sequences are long enough for all splits.
  if (C::kWindow == 0 && positions >= 512) {
    CHECK(2 * tiles >= shape.tiles());
    CHECK(2 * pieces >= shape.pieces());
  }
}

} // namespace

TEST_CASE("no step has more tiles or pieces than kernels declare") {
  checkBounds<Stage<1, 32, 4, 128, 132>>(40960);
  checkBounds<Stage<2, 32, 4, 128, 132>>(40960);
  checkBounds<Stage<8, 32, 4, 128, 132>>(40960);
  checkBounds<Stage<16, 32, 4, 128, 132>>(40960);
  checkBounds<Stage<16, 32, 4, 128, 132, 0, 1, KvFormat::e4m3>>(40960);
  checkBounds<Stage<8, 8, 2, 64, 4>>(4096);
  checkBounds<Stage<3, 6, 3, 64, 7>>(300);
  checkBounds<Stage<8, 1, 1, 64, 5>>(4096);
  checkBounds<Stage<16, 16, 8, 128, 132>>(131072);
  // Windows, whose splits are short: several to a tile.
  checkBounds<Stage<16, 8, 1, 128, 132, 64>>(4096);
  checkBounds<Stage<16, 8, 2, 128, 132, 512, 2>>(131072);
  checkBounds<Stage<16, 4, 1, 128, 148, 1024, 1, KvFormat::e4m3>>(40960);
  checkBounds<Stage<12, 4, 1, 128, 33, 112>>(3000);
  checkBounds<Stage<16, 4, 1, 256, 8, 1024>>(40960);
  checkBounds<Stage<1, 4, 1, 128, 132, 512>>(40960);
}

TEST_CASE("each channel of each row has one merge tile; dead rows have no splits") {
  const StepDescriptor step = makeStep({{700, 1}, {15, 2}});
  int times[Shape::kRows][Shape::kQHeads][Shape::kMergeParts] = {};
  for (int sm = 0; sm < Shape::kSms; ++sm) {
    MergeTiles<Shape> tiles(step, sm);
    const int count = tiles.count();
    int visited = 0;
    MergeTile tile;
    while (tiles.next(tile)) {
      ++visited;
      ++times[tile.row][tile.q_head][tile.channel / 32];
      CHECK(tile.channel % 32 == 0);
      CHECK(tile.splits == (tile.row == 0 ? split_count(701) : tile.row < 3 ? 2 : 0));
    }
    CHECK(visited == count);
  }
  for (auto &row : times)
    for (auto &head : row)
      for (int part : head)
        REQUIRE(part == 1);
}

TEST_CASE("quotients of negative numbers round down") {
  for (int value = -20; value <= 20; ++value)
    for (int by : {1, 3, 8}) {
      INFO(value << " by " << by);
      CHECK(floor_div(value, by) == int(std::floor(double(value) / by)));
      CHECK(floor_div(value, by) * by + floor_mod(value, by) == value);
      CHECK((floor_mod(value, by) >= 0 && floor_mod(value, by) < by));
    }
}
