//===- GenerateTest.cpp - Steps that follow each other without the host ---===//
//
// A small model whose head has equal rows and rows of NaN, so that ties and unordered logits occur
// in every step: what Executor::generate chooses must be what the host would choose of the logits,
// step by step.
//
//===----------------------------------------------------------------------===//

#include "tests/host/Bench.h"

#include "runtime/execute.h"

#include "llvm/Support/FileSystem.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>

using namespace megalith;
using namespace megalith::runtime;

namespace {

template <class T> T get(llvm::Expected<T> value) {
  if (!value)
    FAIL(llvm::toString(value.takeError()));
  return std::move(*value);
}

void demand(llvm::Error error) {
  if (error)
    FAIL(llvm::toString(std::move(error)));
}

/// Made-up weights; row i of the head is `headRow(i)`'s, and NaN if that is negative.
OpenTensor openWith(const models::HashedWeights &weights, int64_t (*headRow)(int64_t)) {
  return [&weights, headRow](const std::string &name, const std::vector<int64_t> &shape,
                             bool gain) -> llvm::Expected<TensorRow> {
    auto tensor =
        weights.open({name, shape, gain ? models::TensorRole::Gain : models::TensorRole::Matrix});
    if (!tensor)
      return tensor.takeError();
    const bool isHead = name == "lm_head.weight";
    return [shared = std::shared_ptr<models::WeightTensor>(std::move(*tensor)), isHead,
            headRow](int64_t row, std::span<uint16_t> out) {
      const int64_t from = isHead ? headRow(row) : row;
      if (from < 0)
        std::fill(out.begin(), out.end(), uint16_t(0x7FC0));
      else
        shared->row(from, out);
    };
  };
}

/// Compiled once for all cases.
const check::Subject &subject() {
  static const std::unique_ptr<check::Subject> compiled = [] {
    llvm::SmallString<128> folder;
    if (llvm::sys::fs::createUniqueDirectory("megalith-generate", folder))
      FAIL("no temporary folder");
    return get(check::compileSubject(
        {.config = test::readSource("models/configs/qwen3-moe-small.test.json"),
         .name = "qwen3-moe-small",
         .rows = 4,
         .sms = 5,
         .outDir = folder.str().str()}));
  }();
  return *compiled;
}

/// The model on a machine of its own.
struct Model {
  models::HashedWeights weights{1};
  HostBackend backend;
  std::unique_ptr<Executor> executor;

  Model(int64_t (*headRow)(int64_t), uint64_t seed, int64_t tokenSteps = 8)
      : backend({.compile = {.includeFolder = test::deviceHeaderFolder()}, .seed = seed}) {
    executor =
        get(Executor::create(subject().plan, subject().folder, backend, openWith(weights, headRow),
                             {.maxPages = 2, .poolPages = 8, .tokenSteps = tokenSteps}));
  }

  /// The largest of a row's logits, the first among equals; NaN is less than all numbers.
  int32_t best(int64_t row) {
    const std::vector<unsigned char> bytes = get(executor->readBuffer("out"));
    const int64_t vocab = subject().plan.vocab;
    std::vector<float> logits(static_cast<size_t>(vocab));
    std::memcpy(logits.data(), bytes.data() + row * vocab * 4, size_t(vocab) * 4);
    int32_t winner = 0;
    for (int32_t i = 1; i < vocab; ++i)
      if (logits[i] > logits[winner] || (std::isnan(logits[winner]) && !std::isnan(logits[i])))
        winner = i;
    return winner;
  }
};

/// Rows 0..2 of one sequence, row 3 of another; later steps have dead rows 1 and 2 between.
const std::vector<StepSequence> kPrompt = {{.tokens = {5, 6, 7}, .pages = {3, 1}},
                                           {.tokens = {8}, .pages = {2, 0}}};

/// The same, the host choosing.
std::vector<std::vector<int32_t>> stepByStep(Model &model, std::vector<StepSequence> sequences,
                                             int64_t steps) {
  std::vector<std::vector<int32_t>> tokens;
  for (int64_t s = 0; s < steps; ++s) {
    demand(model.executor->setStep(sequences));
    demand(model.executor->runStep());
    std::vector<int32_t> &chosen = tokens.emplace_back();
    int32_t next = 0;
    for (StepSequence &sequence : sequences) {
      const int32_t first = sequence.firstRow < 0 ? next : sequence.firstRow;
      const int32_t rows = int32_t(sequence.tokens.size());
      next = first + rows;
      chosen.push_back(model.best(first + rows - 1));
      sequence.firstRow = first;
      sequence.start += rows;
      sequence.tokens = {chosen.back()};
    }
  }
  return tokens;
}

} // namespace

TEST_CASE("tokens are those that the host would choose of the logits") {
  const auto headRow = GENERATE(
      +[](int64_t row) { return row; },     //
      +[](int64_t row) { return row % 9; }, // ties in every row
      +[](int64_t row) { return row % 3 ? row : -1; }, +[](int64_t) { return int64_t(-1); });
  Model host(headRow, 1);
  const auto expected = stepByStep(host, kPrompt, 5);
  for (uint64_t seed : {2, 3}) {
    Model model(headRow, seed);
    demand(model.executor->setStep(kPrompt));
    CHECK(get(model.executor->generate(5)) == expected);
    // The device has moved on by five steps, and so has the executor.
    CHECK(model.executor->launchBase() == 5 * subject().plan.launches.size());
  }
  Model again(headRow, 4);
  demand(again.executor->setStep(kPrompt));
  auto parts = get(again.executor->generate(2));
  for (auto &more : get(again.executor->generate(3)))
    parts.push_back(more);
  CHECK(parts == expected);
}

TEST_CASE("ties go to the lowest token, NaN to nobody") {
  Model equal(
      +[](int64_t row) { return row % 9; }, 1);
  for (const auto &tokens : stepByStep(equal, kPrompt, 3))
    for (int32_t token : tokens)
      CHECK(token < 9);
  Model nothing(
      +[](int64_t) { return int64_t(-1); }, 1);
  demand(nothing.executor->setStep(kPrompt));
  CHECK(get(nothing.executor->generate(2)) == std::vector<std::vector<int32_t>>{{0, 0}, {0, 0}});
}

TEST_CASE("a generation without room for its positions is refused before it runs") {
  const auto same = +[](int64_t row) { return row; };
  Model model(same, 1, 200);
  demand(model.executor->setStep(kPrompt));
  const std::string pages = llvm::toString(model.executor->generate(128).takeError());
  CHECK(pages ==
        "step: sequence 0: expected 3 pages for its 3 positions and 127 more steps but 2 are "
        "reserved; reserve more or generate at most 125 more");
  CHECK(model.executor->launchBase() == 0);
  const std::string list = llvm::toString(model.executor->generate(201).takeError());
  CHECK(list == "tokens of 201 steps are to be generated, expected 1 to 200, for which the "
                "executor was set up (tokenSteps)");
  // A page that is the other sequence's too would be written by a later step.
  std::vector<StepSequence> shared = kPrompt;
  shared[1].pages[1] = 3;
  demand(model.executor->setStep(shared));
  const std::string twice = llvm::toString(model.executor->generate(70).takeError());
  CHECK(twice.find("page 3 of the pool: expected one place in the page tables, as this step or one "
                   "behind it writes it") != std::string::npos);
}
