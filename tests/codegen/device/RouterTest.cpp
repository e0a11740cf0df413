//===- RouterTest.cpp - Top-k and the routing table on the host platform --===//

#include "runtime/host/machine.h"
#include "tests/codegen/device/RouterKernel.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <vector>

using namespace megalith;

#define MEGALITH_TEST_KERNEL(name) extern "C" const host::KernelRecord megalith_kernel_##name
MEGALITH_TEST_KERNEL(router_small);
MEGALITH_TEST_KERNEL(router_many);
MEGALITH_TEST_KERNEL(router_most);
MEGALITH_TEST_KERNEL(router_biased);
MEGALITH_TEST_KERNEL(router_plain);
MEGALITH_TEST_KERNEL(router_aside);
MEGALITH_TEST_KERNEL(router_tiny1);
MEGALITH_TEST_KERNEL(router_tiny2);
MEGALITH_TEST_KERNEL(router_tiny3);

namespace {

struct alignas(16) Step : StepDescriptor {};

/// A launch of router kernel K on `logits`, [rows][experts]; rows not in `live` are dead.
template <class K> struct Routing {
  static constexpr int kRows = K::top_k::kRows, kExperts = K::top_k::kExperts,
                       kTop = K::top_k::kTopK;
  using Record = RoutingRecord<typename K::top_k>;
  using Table = typename K::Table;

  std::vector<float> logits, bias;
  std::vector<bool> live;
  std::vector<int32_t> given; // empty: the kernel selects
  std::vector<Table> table = std::vector<Table>(2);
  std::vector<uint32_t> record = std::vector<uint32_t>(kRows * Record::kWords);

  explicit Routing(std::vector<float> values, std::vector<bool> alive = {})
      : logits(std::move(values)), live(std::move(alive)) {
    live.resize(kRows, live.empty());
    for (int e = 0; e < kExperts; ++e)
      bias.push_back(float(e * 37 % 11) * 0.05f);
  }

  void launch(const host::KernelRecord &kernel, uint64_t seed = 1) {
    host::Machine machine(
        {.sms = 2, .smem_bytes = (K::kSmemBytes + 127) / 128 * 128, .seed = seed});
    Step step = {};
    step.live_rows = kRows;
    for (int r = 0; r < kMaxRows; ++r)
      step.row_seq[r] = r < kRows && live[r] ? r : -1;
    LaunchArgs args = {};
    args.step = &step;
    const auto bind = [&](int slot, auto &data, const char *name, host::Access access) {
      args.buffer[slot] = data.data();
      machine.registerBuffer(data.data(), data.size() * sizeof(data[0]), name, access);
    };
    machine.registerBuffer(&step, sizeof step, "step", host::Access::read);
    bind(test::kLogits, logits, "logits", host::Access::read);
    bind(test::kBias, bias, "bias", host::Access::read);
    bind(test::kTable, table, "table", host::Access::read_write);
    bind(test::kRoutingOut, record, "routing_out", host::Access::read_write);
    if (!given.empty())
      bind(test::kRoutingIn, given, "routing_in", host::Access::read);
    auto report = machine.run({{&kernel, args}});
    if (!report)
      FAIL(llvm::toString(report.takeError()));
  }

  double score(int row, int expert) const {
    const double x = logits[row * kExperts + expert];
    return K::Base::kBias < 0 ? x : 1 / (1 + std::exp(-x)) + bias[expert];
  }

  /// The experts by descending score, ties to the lower index, NaN last.
  std::vector<int> selected(int row) const {
    if (!given.empty())
      return {given.begin() + row * kTop, given.begin() + (row + 1) * kTop};
    std::vector<int> order(kExperts);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      const double x = score(row, a), y = score(row, b);
      return !std::isnan(x) && (std::isnan(y) || x > y);
    });
    order.resize(kTop);
    return order;
  }

  std::vector<double> weights(int row, const std::vector<int> &ids) const {
    const auto logit = [&](int e) { return double(logits[row * kExperts + e]); };
    constexpr bool kSigmoid = K::top_k::kWeights == ExpertWeights::sigmoid ||
                              K::top_k::kWeights == ExpertWeights::sigmoid_renormalised;
    std::vector<double> w;
    for (int e : ids)
      w.push_back(kSigmoid ? 1 / (1 + std::exp(-logit(e))) : std::exp(logit(e)));
    double sum = 0;
    if (K::top_k::kWeights == ExpertWeights::sigmoid)
      sum = 1;
    else if (K::top_k::kWeights == ExpertWeights::softmax)
      for (int e = 0; e < kExperts; ++e)
        sum += std::exp(logit(e));
    else
      sum = std::accumulate(w.begin(), w.end(), 0.0);
    for (double &x : w)
      x = x / sum * K::top_k::kWeightScale;
    return w;
  }

  void check(bool checkWeights = true) const {
    REQUIRE(table[0].active == table[1].active);
    const Table &t = table[1];
    std::vector<std::pair<int, int>> pairs; // (expert, pair)
    for (int r = 0; r < kRows; ++r) {
      CAPTURE(r);
      const std::vector<int> ids = selected(r);
      const std::vector<double> w = weights(r, ids);
      for (int s = 0; s < kTop; ++s) {
        const int p = r * kTop + s;
        REQUIRE(t.id[p] == (live[r] ? ids[s] : -1));
        REQUIRE(table[0].id[p] == t.id[p]);
        REQUIRE(int32_t(record[r * Record::kWords + Record::kIds + s]) == t.id[p]);
        REQUIRE(record[r * Record::kWords + Record::kWeights + s] == float_to_bits(t.weight[p]));
        if (!live[r])
          REQUIRE(t.weight[p] == 0);
        else if (checkWeights)
          REQUIRE(std::abs(t.weight[p] - w[s]) <= 2e-6 * std::abs(w[s]));
        if (live[r])
          pairs.push_back({ids[s], p});
      }
      for (int e = 0; e < kExperts; ++e) {
        const uint32_t *words = record.data() + r * Record::kWords;
        REQUIRE(words[Record::kLogits + e] == float_to_bits(logits[r * kExperts + e]));
        if (K::Base::kBias < 0)
          REQUIRE(words[Record::kSelection + e] == words[Record::kLogits + e]);
        else
          REQUIRE(std::abs(bits_to_float(words[Record::kSelection + e]) - score(r, e)) < 1e-6);
      }
    }
    if (!K::kAside) // else slot by slot
      std::sort(pairs.begin(), pairs.end());
    int active = 0;
    for (size_t i = 0; i < pairs.size(); ++i) {
      REQUIRE(t.pair[i] == pairs[i].second);
      if (i == 0 || pairs[i].first != pairs[i - 1].first) {
        REQUIRE(t.expert[active] == pairs[i].first);
        REQUIRE(t.first[active] == int(i));
        ++active;
      }
    }
    REQUIRE(t.active == active);
    REQUIRE(t.first[active] == int(pairs.size()));
  }
};

std::vector<float> randomLogits(int count, uint32_t seed, int levels) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float &x : values)
    x = levels > 0 ? float(random() % levels) : float(random()) / 4294967296.0f * 12 - 6;
  return values;
}

/// What the proof takes of the table (docs/kernel-contract.md section 9): @expert_id is the same on
/// all SMs and injective; the rows of pairs that its entries name are each live pair once; @active
/// is in its range.
template <class K> void checkAxioms(const Routing<K> &routing) {
  constexpr int kTop = Routing<K>::kTop, kRows = Routing<K>::kRows;
  const auto &t = routing.table[0], &other = routing.table[1];
  REQUIRE(t.active == other.active);
  REQUIRE((t.active >= 0 && t.active <= K::Table::kMaxActive));
  std::set<int> experts, pairs;
  REQUIRE(t.first[0] == 0);
  for (int a = 0; a < t.active; ++a) {
    REQUIRE(t.expert[a] == other.expert[a]);
    REQUIRE((t.expert[a] >= 0 && t.expert[a] < Routing<K>::kExperts));
    REQUIRE(experts.insert(t.expert[a]).second);
    REQUIRE(t.first[a] < t.first[a + 1]); // active: it has pairs
    REQUIRE(t.first[a + 1] == other.first[a + 1]);
    std::set<int> rows;
    for (int i = t.first[a]; i < t.first[a + 1]; ++i) {
      const int p = t.pair[i];
      REQUIRE(p == other.pair[i]);
      REQUIRE((p >= 0 && p < kRows * kTop));
      REQUIRE(t.id[p] == t.expert[a]);
      REQUIRE(pairs.insert(p).second);
      REQUIRE(rows.insert(p / kTop).second); // a row's experts differ: at most kRows rows gather
    }
  }
  size_t live = 0;
  for (int r = 0; r < kRows; ++r)
    live += routing.live[r] ? kTop : 0;
  REQUIRE(pairs.size() == live);
}

/// Every row dead or routed to every sequence of kTop different experts.
template <class K> void checkEveryRouting(const host::KernelRecord &kernel) {
  constexpr int kTop = Routing<K>::kTop, kRows = Routing<K>::kRows, kExperts = Routing<K>::kExperts;
  std::vector<std::vector<int32_t>> choices = {{}}; // dead
  std::vector<int32_t> ids(kTop);
  const std::function<void(int)> choose = [&](int slot) {
    if (slot == kTop) {
      choices.push_back(ids);
      return;
    }
    for (int e = 0; e < kExperts; ++e)
      if (std::find(ids.begin(), ids.begin() + slot, e) == ids.begin() + slot) {
        ids[slot] = e;
        choose(slot + 1);
      }
  };
  choose(0);
  int64_t cases = 1;
  for (int r = 0; r < kRows; ++r)
    cases *= choices.size();
  for (int64_t code = 0; code < cases; ++code) {
    std::vector<bool> live;
    std::vector<int32_t> given;
    int64_t rest = code;
    for (int r = 0; r < kRows; ++r, rest /= choices.size()) {
      const auto &choice = choices[rest % choices.size()];
      live.push_back(!choice.empty());
      for (int s = 0; s < kTop; ++s)
        given.push_back(choice.empty() ? s : choice[s]);
    }
    Routing<K> routing(std::vector<float>(kRows * kExperts, 0.5f), live);
    routing.given = given;
    routing.launch(kernel, 1 + code);
    checkAxioms(routing);
  }
}

} // namespace

TEST_CASE("every routing of few rows to few experts obeys the tables' axioms") {
  checkEveryRouting<test::Tiny1>(megalith_kernel_router_tiny1);
  checkEveryRouting<test::Tiny2>(megalith_kernel_router_tiny2);
  checkEveryRouting<test::Tiny3>(megalith_kernel_router_tiny3);
}

TEST_CASE("every order and tie of four logits") {
  std::vector<float> all;
  const float values[] = {-1, 0, 1, 2};
  for (int code = 0; code < 256; ++code)
    for (int e = 0; e < 4; ++e)
      all.push_back(values[code >> (2 * e) & 3]);
  for (int first = 0; first < 256; first += 8) {
    Routing<test::Small> routing({all.begin() + 4 * first, all.begin() + 4 * (first + 8)});
    routing.launch(megalith_kernel_router_small);
    routing.check();
    checkAxioms(routing);
  }
}

TEST_CASE("-0 ties with +0; NaN and infinities have their places") {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  Routing<test::Small> routing({
      -0.0f,   0.0f,     -0.0f,   0.0f, // 0, 1
      0.0f,    -1,       -0.0f,   0.0f, // 0, 2
      nan,     -inf,     nan,     -inf, // 1, 3
      nan,     nan,      nan,     -5,   // 3, 0
      nan,     nan,      nan,     nan,  // 0, 1
      -inf,    inf,      -inf,    inf,  // 1, 3
      1e-45f,  0,        -1e-45f, 0,    // 0, 1
      3.4e38f, -3.4e38f, inf,     1     // 2, 0
  });
  routing.launch(megalith_kernel_router_small);
  routing.check(false);
}

TEST_CASE("many experts: random logits, ties, dead rows") {
  for (int levels : {0, 3, 40}) {
    Routing<test::Many> routing(randomLogits(8 * 128, 5 + levels, levels));
    routing.launch(megalith_kernel_router_many);
    routing.check();
    Routing<test::Many> dead(randomLogits(8 * 128, 6 + levels, levels),
                             {true, false, true, true, false, false, true});
    dead.launch(megalith_kernel_router_many, 3);
    dead.check();
    Routing<test::Most> most(randomLogits(4 * 512, 7 + levels, levels));
    most.launch(megalith_kernel_router_most);
    most.check();
  }
  Routing<test::Many> none(randomLogits(8 * 128, 1, 0), {false});
  none.launch(megalith_kernel_router_many);
  none.check();
  CHECK(none.table[0].active == 0);
}

TEST_CASE("a row is routed as it would be alone; identical rows get identical bits") {
  std::vector<float> logits = randomLogits(8 * 128, 11, 0);
  std::copy_n(logits.begin(), 128, logits.begin() + 5 * 128);
  Routing<test::Many> all(logits), alone(logits, {true});
  all.launch(megalith_kernel_router_many);
  alone.launch(megalith_kernel_router_many, 9);
  for (int s = 0; s < 8; ++s) {
    CHECK(all.table[0].id[s] == alone.table[0].id[s]);
    CHECK(float_to_bits(all.table[0].weight[s]) == float_to_bits(alone.table[0].weight[s]));
    CHECK(all.table[0].id[s] == all.table[0].id[40 + s]);
    CHECK(float_to_bits(all.table[0].weight[s]) == float_to_bits(all.table[0].weight[40 + s]));
  }
}

TEST_CASE("sigmoid scores with a selection bias") {
  Routing<test::Biased> routing(randomLogits(2 * 60, 3, 0));
  routing.launch(megalith_kernel_router_biased);
  routing.check();
  Routing<test::Plain> plain(randomLogits(8, 4, 0));
  plain.launch(megalith_kernel_router_plain);
  plain.check();
  Routing<test::Plain> dead(randomLogits(8, 4, 0), {false});
  dead.launch(megalith_kernel_router_plain);
  dead.check();
}

TEST_CASE("one row by one warp: lists slot by slot, weights apart; ties within and between lanes") {
  for (int levels : {0, 1, 2, 9, 12})
    for (bool live : {true, false}) {
      Routing<test::Aside> routing(randomLogits(256, 31 + levels, levels), {live});
      if (levels > 0)
        routing.bias.assign(256, 0.25f);
      routing.launch(megalith_kernel_router_aside, 5 + levels);
      routing.check();
      checkAxioms(routing);
    }
}

TEST_CASE("routing_in replaces the selection, weights come from the own logits") {
  Routing<test::Many> routing(randomLogits(8 * 128, 21, 0));
  for (int p = 0; p < 64; ++p) // distinct in a row, in no order
    routing.given.push_back((p % 8 * 53 + p / 8 * 7) % 128);
  routing.launch(megalith_kernel_router_many);
  routing.check();
}
