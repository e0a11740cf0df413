//===- TilesTest.cpp - Attention and merge tiles of a step ----------------===//

#include "codegen/device/tiles.cuh"
#include "codegen/device/cta.cuh"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <map>
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
