//===- StepTest.cpp - Steps and their preconditions -----------------------===//

#include "runtime/step.h"

#include <catch2/catch.hpp>

using namespace megalith;
using namespace megalith::runtime;
using Catch::Matchers::Contains;

namespace {

const StepLimits kLimits = {.rows = 4, .maxPages = 3, .poolPages = 8, .vocab = 100};

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
  CHECK_THAT(failure({}), Contains("no sequences"));
  CHECK_THAT(failure({{.tokens = {1, 1, 1, 1, 1}, .pages = {0}}}),
             Contains("sequence 0 has rows [0, 5), the plan has 4") && Contains("rows bucket"));
  CHECK_THAT(failure(std::vector<StepSequence>(5, {.tokens = {1}, .pages = {0}})),
             Contains("5 sequences for a plan of 4 rows"));
  CHECK_THAT(failure({{.tokens = {}, .pages = {0}}, {.tokens = {1}, .pages = {1}}}),
             Contains("sequence 0 has no rows"));
  CHECK_THAT(failure({{.start = -1, .tokens = {1}, .pages = {0}}}), Contains("starts at -1"));
  CHECK_THAT(failure({{.tokens = {1}, .pages = {0}, .firstRow = 1},
                      {.tokens = {1, 1}, .pages = {1}, .firstRow = 0}}),
             Contains("row 1 belongs to sequences 0 and 1"));
  CHECK_THAT(failure({{.tokens = {100}, .pages = {0}}}),
             Contains("row 0 has token 100, expected 0..99"));
  CHECK_THAT(failure({{.tokens = {-1}, .pages = {0}}}), Contains("token -1"));
}

TEST_CASE("lengths stay within page tables and pools") {
  CHECK_THAT(failure({{.start = 63, .tokens = {1, 1}, .pages = {0}}}),
             Contains("of 65 positions needs 2 pages, its table has 1"));
  CHECK_THAT(failure({{.start = 191, .tokens = {1, 1}, .pages = {0, 1, 2}}}),
             Contains("needs 4 pages, a page table holds 3"));
  CHECK_THAT(failure({{.tokens = {1}, .pages = {0, 1, 2, 3}}}),
             Contains("has 4 pages, a page table holds 3"));
  CHECK_THAT(failure({{.tokens = {1}, .pages = {8}}}),
             Contains("sequence 0, page 0 is page 8 of the pool, which has 8"));
  CHECK(bool(buildStep(std::vector<StepSequence>{{.start = 191, .tokens = {1}, .pages = {5, 6, 7}}},
                       kLimits)));
}

TEST_CASE("a written page stands once in all tables") {
  // Written by both; written by one and read by the other; twice in one table.
  CHECK_THAT(failure({{.tokens = {1}, .pages = {3}}, {.tokens = {1}, .pages = {3}}}),
             Contains("page 3 of the pool is written") && Contains("sequence 0") &&
                 Contains("sequence 1"));
  CHECK_THAT(failure({{.start = 64, .tokens = {1}, .pages = {3, 4}},
                      {.start = 2, .tokens = {1}, .pages = {3}}}),
             Contains("page 3 of the pool is written"));
  CHECK_THAT(failure({{.start = 64, .tokens = {1}, .pages = {3, 3}}}),
             Contains("page 0 of sequence 0 and page 1 of sequence 0"));
  // Rows over a page's end write both pages.
  CHECK_THAT(failure({{.start = 63, .tokens = {1, 1}, .pages = {3, 4}},
                      {.start = 64, .tokens = {1}, .pages = {3, 5}}}),
             Contains("page 3 of the pool is written"));
}

TEST_CASE("descriptors made by hand are checked in full") {
  CHECK_THAT(spoiled([](Step &s) { s.descriptor.live_rows = 5; }), Contains("5 live rows"));
  CHECK_THAT(spoiled([](Step &s) { s.descriptor.sequences = 5; }), Contains("5 sequences"));
  CHECK_THAT(spoiled([](Step &s) { s.descriptor.live_rows = 2; }),
             Contains("sequence 1 has rows [2, 3), 2 rows are live"));
  CHECK_THAT(spoiled([](Step &s) { s.pageTable.pop_back(); }), Contains("page tables of 5"));
  CHECK_THAT(spoiled([](Step &s) { s.descriptor.row_pos[1] = 70; }),
             Contains("two rows are position 70 of sequence 0"));
  CHECK_THAT(spoiled([](Step &s) { s.descriptor.row_pos[2] = 1; }),
             Contains("row 2 is position 1 of sequence 1, expected 0"));
  CHECK_THAT(spoiled([](Step &s) { s.descriptor.row_seq[2] = 2; }),
             Contains("row 2 is of sequence 2, there are 2"));
  CHECK_THAT(spoiled([](Step &s) { s.descriptor.row_seq[2] = 0; }),
             Contains("row 2 is of sequence 0, whose rows are [0, 2)"));
  CHECK_THAT(spoiled([](Step &s) { s.descriptor.row_seq[1] = -1; }),
             Contains("row 1 lies in sequence 0, but is marked as of -1"));
}
