// The mixture-of-experts kernels on the host platform, against a plain C++ reference, with dead
// rows and in two rows buckets.
#include "runtime/host/machine.h"
#include "tests/codegen/HostHarness.h"

#include "llvm/Support/Error.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <numeric>

extern "C" {
extern const megalith::host::KernelRecord megalith_kernel_moe_rows4_embed;
extern const megalith::host::KernelRecord megalith_kernel_moe_rows4_layer;
extern const megalith::host::KernelRecord megalith_kernel_moe_rows8_embed;
extern const megalith::host::KernelRecord megalith_kernel_moe_rows8_layer;
}

using namespace megalith;
using namespace megalith::test;

namespace {

constexpr int kHidden = 192, kProjected = 640, kExperts = 8, kTopK = 2, kInner = 64;
constexpr int kVocabulary = 101, kTokens = 32, kSms = 3, kLayers = 3;
constexpr double kEps = 1e-5;

struct Weights {
  std::mt19937 rng{11};
  Matrix table = Matrix::random(rng, kTokens, kHidden, 1);
  Matrix gain1 = Matrix::random(rng, 1, kHidden, 0.25f, 1);
  Matrix gain2 = Matrix::random(rng, 1, kHidden, 0.25f, 1);
  Matrix qkv = Matrix::random(rng, kProjected, kHidden, 0.125f);
  Matrix o = Matrix::random(rng, kHidden, kProjected, 0.0625f);
  Matrix router = Matrix::random(rng, kExperts, kHidden, 0.125f);
  Matrix head = Matrix::random(rng, kVocabulary, kHidden, 0.125f);
  std::vector<Matrix> gateUp, down; // rows 2i, 2i + 1 of gateUp: gate i, up i

  Weights() {
    for (int e = 0; e < kExperts; ++e) {
      gateUp.push_back(Matrix::random(rng, 2 * kInner, kHidden, 0.125f));
      down.push_back(Matrix::random(rng, kHidden, kInner, 0.25f));
    }
  }
};

/// A row of a step: its token (-1: dead) and, the same in all layers, its experts and their
/// weights.
struct Row {
  int token;
  int expert[kTopK];
  float weight[kTopK];
};

/// What a layer's launch leaves of a row.
struct Result {
  std::vector<float> router, head;
  bool operator==(const Result &) const = default;
};

std::vector<float> add(const std::vector<float> &s, const std::vector<float> &delta) {
  std::vector<float> sum;
  for (size_t i = 0; i < s.size(); ++i)
    sum.push_back(round16(static_cast<double>(s[i]) + delta[i]));
  return sum;
}
std::vector<float> single(const std::vector<double> &x) {
  return {x.begin(), x.end()};
}

std::vector<Result> reference(const Weights &w, const Row &row) {
  auto s = w.table.floats(row.token);
  auto q = rounded(multiply(w.qkv, rmsNorm(s, w.gain1.floats(0), kEps)));
  std::vector<Result> results;
  for (int layer = 0; layer < kLayers; ++layer) {
    Result result;
    s = add(s, rounded(multiply(w.o, q)));
    auto n = rmsNorm(s, w.gain2.floats(0), kEps);
    result.router = single(multiply(w.router, n));
    std::vector<double> mixed(kHidden);
    for (int k = 0; k < kTopK; ++k) {
      const auto gu = rounded(multiply(w.gateUp[row.expert[k]], n));
      std::vector<float> a;
      for (int i = 0; i < kInner; ++i)
        a.push_back(
            round16(gu[2 * i] / (1 + std::exp(-static_cast<double>(gu[2 * i]))) * gu[2 * i + 1]));
      const auto y = rounded(multiply(w.down[row.expert[k]], a));
      for (int i = 0; i < kHidden; ++i)
        mixed[i] += static_cast<double>(row.weight[k]) * y[i];
    }
    s = add(s, rounded(mixed));
    n = rmsNorm(s, w.gain1.floats(0), kEps);
    q = rounded(multiply(w.qkv, n));
    result.head = single(multiply(w.head, n));
    results.push_back(result);
  }
  return results;
}

/// The Routing struct of moe_by_hand.cu as words: active, expert[E], first[E + 1], pair[P],
/// weight[P].
std::vector<uint32_t> routingTable(const std::vector<Row> &rows) {
  const size_t pairs = kTopK * rows.size();
  std::vector<uint32_t> table(1 + kExperts + kExperts + 1 + 2 * pairs);
  uint32_t *expert = &table[1], *first = expert + kExperts, *pair = first + kExperts + 1;
  uint32_t *weight = pair + pairs, active = 0, count = 0;
  for (int e = 0; e < kExperts; ++e) {
    const uint32_t begin = count;
    for (size_t r = 0; r < rows.size(); ++r)
      for (int k = 0; k < kTopK; ++k)
        if (rows[r].token >= 0 && rows[r].expert[k] == e)
          pair[count++] = static_cast<uint32_t>(r * kTopK + k);
    if (count > begin) {
      expert[active] = static_cast<uint32_t>(e);
      first[active++] = begin;
      first[active] = count;
    }
  }
  table[0] = active;
  for (size_t r = 0; r < rows.size(); ++r)
    for (int k = 0; k < kTopK; ++k)
      weight[r * kTopK + k] = std::bit_cast<uint32_t>(rows[r].weight[k]);
  return table;
}

/// Results [layer][row] of a step of kLayers + 1 launches; steps go on counting launches from
/// `base`. Rows are 4 or 8.
llvm::Expected<std::vector<std::vector<Result>>> run(const Weights &w, const std::vector<Row> &rows,
                                                     uint64_t seed, uint64_t base = 0) {
  const int count = static_cast<int>(rows.size());
  const auto &embed =
      count == 4 ? megalith_kernel_moe_rows4_embed : megalith_kernel_moe_rows8_embed;
  const auto &layer =
      count == 4 ? megalith_kernel_moe_rows4_layer : megalith_kernel_moe_rows8_layer;
  host::Options options;
  options.sms = kSms;
  options.seed = seed;
  host::Machine machine(options);

  std::vector<std::vector<unsigned char>> packed(6);
  pack(w.qkv, packed[0]);
  pack(w.o, packed[1]);
  pack(w.router, packed[2]);
  for (int e = 0; e < kExperts; ++e) {
    pack(w.gateUp[e], packed[3]);
    pack(w.down[e], packed[4]);
  }
  pack(w.head, packed[5]);
  auto table = w.table.bits, gain1 = w.gain1.bits, gain2 = w.gain2.bits;
  auto routing = routingTable(rows);
  std::vector<std::vector<uint32_t>> words;
  for (int size :
       {3 * kProjected / 2, 3 * kHidden / 2, 2 * kHidden / 2, 2 * kExperts, 2 * kTopK * kInner / 2})
    words.emplace_back(static_cast<size_t>(size * count), runtime::kEmptyWord);

  StepDescriptor step = {};
  step.launch_base = base;
  step.live_rows = count;
  for (int r = 0; r < count; ++r) {
    step.row_seq[r] = rows[r].token < 0 ? -1 : step.sequences++;
    step.row_token[r] = rows[r].token;
  }
  OneFault fault;
  LaunchArgs args = {};
  args.step = &step;
  args.fault = &fault.table;
  int slot = 0;
  const auto bind = [&](auto &v, const char *name, host::Access access) {
    machine.registerBuffer(v.data(), v.size() * sizeof(v[0]), name, access);
    args.buffer[slot++] = v.data();
  };
  machine.registerBuffer(&step, sizeof step, "step", host::Access::read);
  bind(table, "table", host::Access::read);
  bind(gain1, "gain1", host::Access::read);
  bind(gain2, "gain2", host::Access::read);
  for (auto &matrix : packed)
    bind(matrix, "weights", host::Access::read);
  bind(routing, "routing", host::Access::read);
  for (auto &exchange : words)
    bind(exchange, "exchange", host::Access::read_write);

  std::vector<std::vector<float>> router(kLayers), head(kLayers);
  std::vector<host::Launch> launches = {{&embed, args}};
  for (int l = 0; l < kLayers; ++l) {
    router[l].resize(static_cast<size_t>(count * kExperts));
    head[l].resize(static_cast<size_t>(count * kVocabulary));
    slot = 15;
    for (auto *out : {&router[l], &head[l]}) {
      host::poison(out->data(), 4 * out->size());
      bind(*out, "out", host::Access::read_write);
    }
    args.launch_in_step = static_cast<uint32_t>(l + 1);
    launches.push_back({&layer, args});
  }
  auto report = machine.run(launches);
  if (!report)
    return report.takeError();
  std::vector<std::vector<Result>> results(kLayers);
  for (int l = 0; l < kLayers; ++l)
    for (int r = 0; r < count; ++r) {
      const auto part = [&](const std::vector<float> &v, int width) {
        return std::vector<float>(v.begin() + r * width, v.begin() + (r + 1) * width);
      };
      results[l].push_back({part(router[l], kExperts), part(head[l], kVocabulary)});
    }
  return results;
}

std::vector<Row> randomRows(std::mt19937 &rng, int count) {
  std::vector<Row> rows;
  for (int r = 0; r < count; ++r) {
    int experts[kExperts];
    std::iota(experts, experts + kExperts, 0);
    std::shuffle(experts, experts + kExperts, rng);
    const float weight = std::uniform_real_distribution<float>(0.2f, 0.8f)(rng);
    rows.push_back(
        {static_cast<int>(rng() % kTokens), {experts[0], experts[1]}, {weight, 1 - weight}});
  }
  return rows;
}

void check(const Weights &w, const std::vector<Row> &rows, uint64_t seeds) {
  std::vector<std::vector<Result>> first;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    INFO("seed " << seed);
    auto results = run(w, rows, seed);
    if (!results)
      FAIL(llvm::toString(results.takeError()));
    if (first.empty())
      first = *results;
    REQUIRE(*results == first);
  }
  for (size_t r = 0; r < rows.size(); ++r) {
    const bool live = rows[r].token >= 0;
    const auto want = live ? reference(w, rows[r]) : std::vector<Result>(kLayers);
    for (int l = 0; l < kLayers; ++l) {
      INFO("row " << r << " layer " << l);
      if (live) {
        CHECK(relativeRms(first[l][r].router, want[l].router) < 1e-2);
        CHECK(relativeRms(first[l][r].head, want[l].head) < 1e-2);
      } else {
        CHECK(first[l][r].router == std::vector<float>(kExperts));
        CHECK(first[l][r].head == std::vector<float>(kVocabulary));
      }
    }
  }
}

} // namespace

TEST_CASE("mixture-of-experts layers equal the reference, with the same bits under every seed",
          "[moe]") {
  const Weights w;
  std::mt19937 rng(3);
  SECTION("four rows") {
    check(w, randomRows(rng, 4), 12);
  }
  SECTION("four rows, two of them dead") {
    auto rows = randomRows(rng, 4);
    rows[1].token = rows[3].token = -1;
    check(w, rows, 12);
  }
  SECTION("eight rows on one pair of experts") {
    auto rows = randomRows(rng, 8);
    for (Row &row : rows) {
      row.expert[0] = 6;
      row.expert[1] = 2;
    }
    check(w, rows, 6);
  }
}

TEST_CASE("bits do not depend on the bucket, the other rows, or the launch number", "[moe]") {
  const Weights w;
  std::mt19937 rng(4);
  const auto eight = randomRows(rng, 8);
  auto wide = run(w, eight, 1);
  REQUIRE(bool(wide));
  auto narrow = run(w, {eight[5], eight[2], eight[7], eight[0]}, 2, 1000003);
  REQUIRE(bool(narrow));
  for (int l = 0; l < kLayers; ++l) {
    CHECK((*narrow)[l][0] == (*wide)[l][5]);
    CHECK((*narrow)[l][1] == (*wide)[l][2]);
    CHECK((*narrow)[l][2] == (*wide)[l][7]);
    CHECK((*narrow)[l][3] == (*wide)[l][0]);
  }
}
