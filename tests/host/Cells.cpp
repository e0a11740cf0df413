//===- Cells.cpp - The steps that the host matrix runs --------------------===//

#include "tests/host/Cells.h"

namespace megalith::test {

using check::Sequence;

/// Sequences of one row each, with these histories.
static std::vector<Sequence> singles(std::initializer_list<int64_t> starts) {
  std::vector<Sequence> sequences;
  for (int64_t start : starts)
    sequences.push_back({.start = start, .content = int64_t(sequences.size())});
  return sequences;
}

static std::vector<std::vector<Sequence>> sequencesFor(int64_t rows) {
  switch (rows) {
  case 1:
    return {singles({0}),  singles({15}),  singles({16}),
            singles({62}), singles({129}), singles({250})};
  case 2:
    return {singles({0, 65}),
            singles({130, 17}),
            {{.start = 40, .firstRow = 1}}, // row 0 is dead
            singles({63}),                  // row 1 is dead
            {{.start = 0, .rows = 2}},
            {{.start = 61, .rows = 2}},
            {{.start = 200, .content = 3}, {.start = 200, .content = 3}}}; // identical
  case 4:
    return {singles({0, 16, 63, 150}),
            {{.start = 47, .content = 1}, {.start = 5, .content = 2, .firstRow = 3}}, // 1, 2 dead
            {{.start = 0, .rows = 4}},
            {{.start = 58, .rows = 4}},
            {{.start = 129, .rows = 3}, {.start = 1, .content = 1}},
            {{.start = 30, .firstRow = 1}, {.start = 90, .rows = 2, .content = 2}}, // 0 is dead
            singles({15, 14, 13})};
  case 8:
    return {singles({0, 1, 15, 16, 17, 63, 64, 129}),
            singles({200, 3}),
            {{.start = 0, .rows = 8}},
            {{.start = 57, .rows = 8}},
            {{.start = 100, .rows = 5}, {.start = 0, .rows = 2, .content = 1}, {.start = 31}},
            {{.start = 12, .rows = 2, .firstRow = 1},
             {.start = 140, .content = 4, .firstRow = 4},
             {.start = 64, .content = 5, .firstRow = 7}},
            {{.start = 77, .content = 1},
             {.start = 76, .rows = 3, .content = 1},
             {.start = 250, .content = 2},
             {.start = 77, .content = 1}}};
  case 16:
    return {singles({0, 1, 15, 16, 17, 63, 64, 129, 2, 31, 32, 48, 100, 5, 7, 200}),
            {{.start = 57, .rows = 16}},
            {{.start = 100, .rows = 9}, {.start = 0, .rows = 2, .content = 1}, {.start = 31}},
            {{.start = 12, .rows = 2, .firstRow = 3}, // most rows are dead, those of the first half
             {.start = 140, .content = 4, .firstRow = 11}, // and of the second
             {.start = 64, .content = 5, .firstRow = 15}}};
  default:
    return {};
  }
}

std::vector<Cell> cells(int64_t rows) {
  std::vector<Cell> result;
  for (std::vector<Sequence> &sequences : sequencesFor(rows)) {
    check::Workload workload{.seed = uint32_t(100 * rows + int64_t(result.size())),
                             .steps = rows == 1 ? 4 : 2};
    workload.sequences = std::move(sequences);
    result.push_back({workload.str(), workload});
  }
  return result;
}

} // namespace megalith::test
