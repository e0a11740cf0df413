//===- StepTest.cpp - Steps and their preconditions -----------------------===//

#include "runtime/step.h"

#include <catch2/catch.hpp>

using namespace megalith;
using namespace megalith::runtime;
using Catch::Matchers::Contains;

namespace {

const StepLimits kLimits = {
    .rows = 4, .maxPages = 3, .poolPages = 8, .maxPositions = 192, .vocab = 100};

std::string failure(std::vector<StepSequence> sequences, StepLimits limits = kLimits) {
  auto step = buildStep(sequences, limits);
  REQUIRE(!step);
  return llvm::toString(step.takeError());
}

/// A good step, to be spoiled.
Step good() {
  const std::vector<StepSequence> sequences = {{.start = 70, .tokens = {5, 6}, .pages = {1, 4}},
                                               {.start = 0, .tokens = {7}, .pages = {2}}};
  auto step = buildStep(sequences, kLimits);
  REQUIRE(bool(step));
  return *step;
}

template <typename Change> std::string spoiled(Change change) {
  Step step = good();
  change(step);
  auto error = checkStep(step, kLimits);
  REQUIRE(bool(error));
  return llvm::toString(std::move(error));
}

} // namespace

TEST_CASE("rows, positions and page tables of a mixed step") {
  const Step step = good();
  const StepDescriptor &d = step.descriptor;
  CHECK(d.sequences == 2);
  CHECK(d.live_rows == 3);
  CHECK(std::vector<int32_t>(d.row_seq, d.row_seq + 5) == std::vector<int32_t>{0, 0, 1, -1, -1});
  CHECK(std::vector<int32_t>(d.row_pos, d.row_pos + 3) == std::vector<int32_t>{70, 71, 0});
  CHECK(std::vector<int32_t>(d.row_token, d.row_token + 3) == std::vector<int32_t>{5, 6, 7});
  CHECK(d.seq[0].first_row == 0);
  CHECK(d.seq[0].rows == 2);
  CHECK(d.seq[0].start == 70);
  CHECK(d.seq[1].first_row == 2);
  CHECK(step.pageTable == std::vector<int32_t>{1, 4, -1, 2, -1, -1});
}

TEST_CASE("rows may be left free between sequences") {
  const std::vector<StepSequence> sequences = {{.tokens = {5}, .pages = {1}, .firstRow = 3},
                                               {.tokens = {6}, .pages = {0}, .firstRow = 1}};
  auto step = buildStep(sequences, kLimits);
  REQUIRE(bool(step));
  const StepDescriptor &d = step->descriptor;
  CHECK(d.live_rows == 4);
  CHECK(std::vector<int32_t>(d.row_seq, d.row_seq + 4) == std::vector<int32_t>{-1, 1, -1, 0});
}

TEST_CASE("pages that are only read may be shared") {
  const std::vector<StepSequence> sequences = {{.start = 64, .tokens = {5}, .pages = {1, 2}},
                                               {.start = 100, .tokens = {5}, .pages = {1, 3}}};
  CHECK(bool(buildStep(sequences, kLimits)));
}

TEST_CASE("steps that no plan may get") {
  CHECK_THAT(failure({}), Contains("at least one sequence but got none"));
  CHECK_THAT(failure({{.tokens = {1, 1, 1, 1, 1}, .pages = {0}}}),
             Contains("sequence 0: expected rows within the plan's 4 but got [0, 5); use a plan of "
                      "more rows"));
  CHECK_THAT(failure(std::vector<StepSequence>(5, {.tokens = {1}, .pages = {0}})),
             Contains("at most 4 sequences, the plan's rows, but got 5"));
  CHECK_THAT(failure({{.tokens = {}, .pages = {0}}, {.tokens = {1}, .pages = {1}}}),
             Contains("sequence 0: expected at least one new row"));
  CHECK_THAT(failure({{.start = -1, .tokens = {1}, .pages = {0}}}),
             Contains("a start of at least 0 but got -1"));
  CHECK_THAT(failure({{.tokens = {1}, .pages = {0}, .firstRow = 1},
                      {.tokens = {1, 1}, .pages = {1}, .firstRow = 0}}),
             Contains("row 1: expected one sequence but got 0 and 1"));
  CHECK_THAT(failure({{.tokens = {100}, .pages = {0}}}),
             Contains("row 0: expected a token from 0 to 99 but got 100"));
  CHECK_THAT(failure({{.tokens = {-1}, .pages = {0}}}), Contains("but got -1"));
}

TEST_CASE("lengths stay within page tables and pools") {
  CHECK_THAT(failure({{.start = 63, .tokens = {1, 1}, .pages = {0}}}),
             Contains("expected 2 pages for its 65 positions but its table has 1"));
  StepLimits longer = kLimits;
  longer.maxPositions = 1000;
  CHECK_THAT(failure({{.start = 191, .tokens = {1, 1}, .pages = {0, 1, 2}}}, longer),
             Contains("the 3 pages that a page table holds but its 193 positions need 4"));
  CHECK_THAT(failure({{.tokens = {1}, .pages = {0, 1, 2, 3}}}),
             Contains("the 3 pages that a page table holds but got 4"));
  CHECK_THAT(failure({{.tokens = {1}, .pages = {8}}}),
             Contains("sequence 0, page 0: expected a page of the pool's 8 but got 8"));
  CHECK(bool(buildStep(std::vector<StepSequence>{{.start = 191, .tokens = {1}, .pages = {5, 6, 7}}},
                       kLimits)));
}

TEST_CASE("a written page stands once in all tables") {
  // Written by both; written by one and read by the other; twice in one table.
  CHECK_THAT(failure({{.tokens = {1}, .pages = {3}}, {.tokens = {1}, .pages = {3}}}),
             Contains("page 3 of the pool: expected one place") && Contains("sequence 0") &&
                 Contains("sequence 1; copy it first"));
  CHECK_THAT(failure({{.start = 64, .tokens = {1}, .pages = {3, 4}},
                      {.start = 2, .tokens = {1}, .pages = {3}}}),
             Contains("page 3 of the pool: expected one place"));
  CHECK_THAT(failure({{.start = 64, .tokens = {1}, .pages = {3, 3}}}),
             Contains("page 0 of sequence 0 and page 1 of sequence 0"));
  // Rows over a page's end write both pages.
  CHECK_THAT(failure({{.start = 63, .tokens = {1, 1}, .pages = {3, 4}},
                      {.start = 64, .tokens = {1}, .pages = {3, 5}}}),
             Contains("page 3 of the pool: expected one place"));
}

TEST_CASE("descriptors made by hand are checked in full") {
  CHECK_THAT(spoiled([](Step &s) { s.descriptor.live_rows = 5; }),
             Contains("0 to 4 live rows but got 5"));
  CHECK_THAT(spoiled([](Step &s) { s.descriptor.sequences = 5; }),
             Contains("0 to 4 sequences but got 5"));
  CHECK_THAT(spoiled([](Step &s) { s.descriptor.live_rows = 2; }),
             Contains("sequence 1: expected rows within the 2 live ones but got [2, 3)"));
  CHECK_THAT(spoiled([](Step &s) { s.pageTable.pop_back(); }),
             Contains("2 x 3 entries, sequences by maxPages, but got 5"));
  CHECK_THAT(
      spoiled([](Step &s) { s.descriptor.row_pos[1] = 70; }),
      Contains("row 1: expected a (sequence, position) of its own but another row is position "
               "70 of sequence 0"));
  CHECK_THAT(spoiled([](Step &s) { s.descriptor.row_pos[2] = 1; }),
             Contains("row 2: expected position 0 of sequence 1 but got 1"));
  CHECK_THAT(spoiled([](Step &s) { s.descriptor.row_seq[2] = 2; }),
             Contains("row 2: expected one of the 2 sequences but got 2"));
  CHECK_THAT(spoiled([](Step &s) { s.descriptor.row_seq[2] = 0; }),
             Contains("row 2: expected one of the rows [0, 2) of its sequence 0"));
  CHECK_THAT(spoiled([](Step &s) { s.descriptor.row_seq[1] = -1; }),
             Contains("row 1: expected sequence 0, in whose rows it lies, but got -1"));
}

TEST_CASE("no sequence is longer than the plan's positions") {
  const StepLimits limits = {.rows = 4, .maxPages = 9, .poolPages = 9, .maxPositions = 100};
  const std::vector<StepSequence> longest = {{.start = 98, .tokens = {1, 1}, .pages = {0, 1}}};
  auto step = buildStep(longest, limits);
  REQUIRE(bool(step));
  CHECK(failure({{.start = 99, .tokens = {1, 1}, .pages = {0, 1}}}, limits) ==
        "step: sequence 0: expected at most the plan's 100 positions, new rows included, but got "
        "101; end the sequence, or compile for longer ones (--least-context)");
  // Steps that follow without the host.
  CHECK(!checkFurtherSteps(*step, limits, 0));
  CHECK_THAT(llvm::toString(checkFurtherSteps(*step, limits, 1)),
             Contains("the plan's 100 positions, new rows included, but got 101; generate fewer"));
}

TEST_CASE("each sequence has a ring of its own that holds window and new rows") {
  StepLimits limits = kLimits;
  limits.rings = 2;
  auto two = [](int32_t first, int32_t second) {
    return std::vector<StepSequence>{{.tokens = {1}, .pages = {0}, .ring = first},
                                     {.tokens = {1}, .pages = {1}, .ring = second}};
  };
  CHECK(bool(buildStep(two(1, 0), limits)));
  CHECK_THAT(failure(two(1, 1), limits),
             Contains("sequence 1: expected a ring of its own") && Contains("but got 1, which "
                                                                            "sequence 0 has"));
  CHECK_THAT(failure(two(0, 2), limits), Contains("a ring from 0 to 1 in layers with a window but "
                                                  "got 2; set up with more (rings)"));
  // 4 rows that begin in the middle of a unit: 110 + 4 + 14 positions are two pages exactly.
  limits.windows = {{.window = 110, .pages = 2}};
  CHECK(bool(buildStep(two(0, 1), limits)));
  limits.windows = {{.window = 111, .pages = 2}};
  CHECK_THAT(failure(two(0, 1), limits),
             Contains("a window of 111: expected rings of at least 129 positions") &&
                 Contains("but got 2 pages of 64"));
  for (int64_t window = 1; window < 3000; ++window) {
    limits.rows = kMaxRows;
    limits.windows = {{window, ringPages(window)}};
    auto step = buildStep(two(0, 1), limits);
    CHECK(bool(step));
  }
}
