// Routing, replicated on every SM: top-k of a row's logits, weights, and the list of (row, slot)
// pairs by expert, ascending; of a single row slot by slot, as they will be added. All of it
// depends on the row alone, except the order of the pair list.
//
// Selection is exact on the given logits: slots in descending selection value, ties to the lower
// expert; NaN is below everything, -0 equals +0. A row's selection value is its logit or, with a
// bias, sigmoid(logit) + bias.
//
// Config members (struct C): those of the base `TopK` below, and
//   Logits   WordRows<., kRows, E>: fp32 logits
//   Routing  SlottedRows<., 1, sizeof(RoutingTable<C>)>: the table
//   Weights  only where one warp routes the only row (route_row): WordRows<., 1, K>, the weights,
//            which follow later; Routing then has room for RoutingLists<C>
#pragma once

#include "codegen/device/rows.cuh"
#include "codegen/device/slots.cuh"

namespace megalith {

/// Weight of a selected expert from the logits.
enum class ExpertWeights {
  softmax,              ///< softmax over all experts
  softmax_renormalised, ///< that, divided by its sum over the selected (= softmax over the
                        ///< selected)
  sigmoid,              ///< logistic function of the logit
  sigmoid_renormalised, ///< that, divided by its sum over the selected
};

/// What a routing stage computes; base of the emitted config.
///   Config       the kernel's: kRows
///   Experts      E, 2..512
///   K            experts of a row, 1..16, at most E
///   Weights, Scale  how logits become weights, and the factor of every weight
///   Bias         buffer slot of fp32 [E] added to the score, for selection only; -1: none
///   RoutingIn    buffer slot of int32 [R][k] ids that replace the selection in launches that bind
///                it (not null); -1: never read
///   RenormalizeEps  added to the sum that renormalised sigmoid weights are divided by
///   RoutingOut   buffer slot of [R][RoutingRecord::kWords] words, written by SM `RoutingOutSm` in
///                launches that bind it; -1: never written
template <class Config, int Experts, int K, ExpertWeights Weights, float Scale, int Bias = -1,
          int RoutingIn = -1, int RoutingOut = -1, int RoutingOutSm = 0,
          float RenormalizeEps = 0.0f>
struct TopK {
  static constexpr int kRows = Config::kRows, kExperts = Experts, kTopK = K;
  static constexpr ExpertWeights kWeights = Weights;
  static constexpr float kWeightScale = Scale, kRenormalizeEps = RenormalizeEps;
  static constexpr int kBias = Bias, kRoutingIn = RoutingIn, kRoutingOut = RoutingOut,
                       kRoutingOutSm = RoutingOutSm;

  static_assert(kRows <= 2 * kConsumerWarps && K >= 1 && K <= 16 && K <= Experts && Experts <= 512);
  static_assert(Bias < 0 || Weights == ExpertWeights::sigmoid ||
                    Weights == ExpertWeights::sigmoid_renormalised,
                "a selection bias is added to a score of one logit");
};

/// What a step routes, in shared memory. Pairs are numbered row * k + slot everywhere.
template <class C> struct RoutingLists {
  static constexpr int kPairs = C::kRows * C::kTopK; // of all rows
  static constexpr int kMaxActive = kPairs < C::kExperts ? kPairs : C::kExperts;

  int32_t active;                // experts with at least one pair
  int32_t expert[kMaxActive];    // their ids, in the order of the list
  int32_t first[kMaxActive + 1]; // pairs of active expert a: pair[first[a]] .. pair[first[a+1] - 1]
  int32_t pair[kPairs];          // row * k + slot, by expert, then row
};
template <class C> struct alignas(16) RoutingTable : RoutingLists<C> {
  float weight[RoutingLists<C>::kPairs]; // [row][slot]; 0 for dead rows
  int32_t id[RoutingLists<C>::kPairs];   // [row][slot]; -1 for dead rows
};

/// Whether weights come after the lists that others wait for.
template <class C>
concept WeighedApart = requires {
  typename C::Weights;
};

/// The table in the arena, for every role that waits for it; read it with ld_shared.
template <class C, class Cta> MEGALITH_DEVICE auto *routing_table(const Cta &cta) {
  unsigned char *table = C::Routing::row(cta, 0, 0);
  if constexpr (WeighedApart<C>) {
    static_assert(sizeof(RoutingLists<C>) <= C::Routing::kBytes);
    return reinterpret_cast<RoutingLists<C> *>(table);
  } else {
    static_assert(sizeof(RoutingTable<C>) <= C::Routing::kBytes);
    return reinterpret_cast<RoutingTable<C> *>(table);
  }
}

/// Weights [row][slot], 0 for dead rows, for every role that waits for them; read likewise.
template <class C, class Cta> MEGALITH_DEVICE float *weights_of(const Cta &cta) {
  if constexpr (WeighedApart<C>)
    return reinterpret_cast<float *>(C::Weights::row(cta, 0));
  else
    return routing_table<C>(cta)->weight;
}

/// A row of routing_out: 4-byte words, the selection values equal to the logits where unbiased.
template <class C> struct RoutingRecord {
  static constexpr int kLogits = 0, kSelection = C::kExperts, kIds = 2 * C::kExperts,
                       kWeights = 2 * C::kExperts + C::kTopK,
                       kWords = 2 * C::kExperts + 2 * C::kTopK;
};

namespace detail {

/// Order of selection values as unsigned integers; 0 is less than all, 1 is NaN.
MEGALITH_DEVICE uint32_t selection_key(float value) {
  const uint32_t bits = float_to_bits(value + 0.0f); // -0 becomes +0
  const auto sign = static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31);
  return value != value ? 1 : bits ^ (sign | 0x80000000u);
}

template <int N> struct Scores { float v[N]; };
/// 1 / x of each: their divisions may have to call a subroutine. Rarely needed.
template <int N> MEGALITH_COLD Scores<N> reciprocals(Scores<N> x) {
  MEGALITH_UNROLL(1)
  for (int turn = 0; turn < N; ++turn) { // each has its turn in front: one piece of code for all
    const float first = 1.0f / x.v[0];
    MEGALITH_UNROLL_ALL
    for (int i = 1; i < N; ++i)
      x.v[i - 1] = x.v[i];
    x.v[N - 1] = first;
  }
  return x;
}
/// 1 / (1 + exp(-x)) of several: together, for a division that may have to call its subroutine
/// waits for the one before.
template <int N> MEGALITH_DEVICE void sigmoids(const float (&x)[N], float (&value)[N]) {
  constexpr float kBound = 1.2676506e30f; // 2^100: steps without bounds on the way
  Scores<N> d;
  bool is_bounded = true;
  MEGALITH_UNROLL_ALL
  for (int i = 0; i < N; ++i) {
    d.v[i] = 1.0f + platform::exp2f_(x[i] * -1.44269504f);
    is_bounded = is_bounded && d.v[i] <= kBound;
    value[i] = platform::bounded_quotient(1.0f, d.v[i]);
  }
  if (!platform::all_sync(is_bounded)) { // together: a call by some would part the warp
    d = reciprocals(d);
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < N; ++i)
      value[i] = d.v[i];
  }
}
MEGALITH_DEVICE float exp_(float x) {
  return platform::exp2f_(x * 1.44269504f);
}

} // namespace detail

/// Experts of a lane: kPerLane * lane and those that follow, so that of equals the lowest expert is
/// the lowest lane's.
template <class C> struct ExpertsOfLane {
  static constexpr int kCount = (C::kExperts + 31) / 32;
  static constexpr bool kIsWhole = C::kExperts == 32 * kCount; // every lane has so many

  static MEGALITH_DEVICE bool exists(int lane, int i) {
    return kIsWhole || kCount * lane + i < C::kExperts;
  }
};

/// What a lane adds to the scores of its experts for the selection.
template <class C> struct RouterBias {
  static constexpr int kPerLane = ExpertsOfLane<C>::kCount;
  float v[C::kBias < 0 ? 1 : kPerLane];

  /// Selection values of this lane's experts.
  MEGALITH_DEVICE void select(const float (&logit)[kPerLane], float (&value)[kPerLane]) const {
    if constexpr (C::kBias >= 0)
      detail::sigmoids(logit, value);
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < kPerLane; ++i)
      value[i] = C::kBias < 0 ? logit[i] : value[i] + v[C::kBias < 0 ? 0 : i];
  }
};

/// Whoever routes, before it polls the logits: the biases come from far away meanwhile.
template <class C, class Cta> MEGALITH_DEVICE RouterBias<C> load_bias(const Cta &cta) {
  RouterBias<C> bias = {};
  if constexpr (C::kBias >= 0) {
    constexpr int kPerLane = RouterBias<C>::kPerLane;
    const auto *table = static_cast<const float *>(cta.template buffer<C::kBias>());
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < kPerLane; ++i)
      if (ExpertsOfLane<C>::exists(cta.lane, i) && cta.role_warp < C::kRows)
        bias.v[i] = platform::ld_const<float>(table + kPerLane * cta.lane + i);
  }
  return bias;
}

namespace detail {
/// The largest, by halves: each comparison waits for fewer others than in a row.
template <int N> MEGALITH_DEVICE uint32_t most_of_keys(const uint32_t (&key)[N]) {
  uint32_t most[N];
  MEGALITH_UNROLL_ALL
  for (int i = 0; i < N; ++i)
    most[i] = key[i];
  MEGALITH_UNROLL_ALL
  for (int step = 1; step < N; step *= 2)
    MEGALITH_UNROLL_ALL
  for (int i = 0; i + step < N; i += 2 * step)
    most[i] = most[i] > most[i + step] ? +most[i] : +most[i + step];
  return most[0];
}

/// The best of a lane's keys, the lowest of equals, and what is left without it.
template <int N> struct LaneBest {
  uint32_t key, rest = 0, others[N] = {};
  int at = 0; // which it is

  /// All else, of a `key` that is known.
  MEGALITH_DEVICE void find(const uint32_t (&keys)[N]) {
    bool is_found = false;
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < N; ++i) {
      const bool is_best = keys[i] == key && !is_found;
      others[i] = is_best ? 0 : keys[i];
      at = is_best ? i : at;
      is_found = is_found || is_best;
    }
    rest = most_of_keys(others);
  }
};

/// Logits of this lane's experts of a row.
template <class C, class Cta>
MEGALITH_DEVICE void load_logits(const Cta &cta, int row,
                                 float (&logit)[ExpertsOfLane<C>::kCount]) {
  using Experts = ExpertsOfLane<C>;
  constexpr int kPerLane = Experts::kCount;
  const uint32_t *logits = C::Logits::row(cta, row) + kPerLane * cta.lane;
  if constexpr (Experts::kIsWhole && kPerLane % 4 == 0) {
    MEGALITH_UNROLL_ALL
    for (int j = 0; j < kPerLane; j += 4) {
      const auto v = platform::ld_shared<u32x4>(logits + j);
      const uint32_t word[4] = {v.x, v.y, v.z, v.w};
      MEGALITH_UNROLL_ALL
      for (int i = 0; i < 4; ++i)
        logit[j + i] = bits_to_float(word[i]);
    }
  } else {
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < kPerLane; ++i)
      logit[i] = Experts::exists(cta.lane, i) ? platform::ld_shared<float>(logits + i) : 0.0f;
  }
}

/// Where this SM records what row `row` is routed to, or null.
template <class C, class Cta> MEGALITH_DEVICE unsigned char *record_of(const Cta &cta, int row) {
  if constexpr (C::kRoutingOut >= 0)
    if (auto *out = static_cast<unsigned char *>(cta.template buffer<C::kRoutingOut>());
        out && cta.sm == C::kRoutingOutSm)
      return out + row * (4 * RoutingRecord<C>::kWords);
  return nullptr;
}

/// The experts of a row's slots to `ids`, and to the record. Returns that of slot `lane`, or 0.
template <class C, class Cta>
MEGALITH_DEVICE int select_row(const Cta &cta, int row, const RouterBias<C> &bias, int32_t *ids) {
  using Experts = ExpertsOfLane<C>;
  constexpr int kPerLane = Experts::kCount;
  float logit[kPerLane], selection[kPerLane];
  load_logits<C>(cta, row, logit);
  bias.select(logit, selection);
  uint32_t key[kPerLane]; // a taken one becomes 0
  MEGALITH_UNROLL_ALL
  for (int i = 0; i < kPerLane; ++i)
    key[i] = Experts::exists(cta.lane, i) ? selection_key(selection[i]) : 0u;

  LaneBest<kPerLane> own = {most_of_keys(key)};
  uint32_t most = ~0u; // no key: before the first turn none is taken
  MEGALITH_UNROLL(1)   // much code a slot, and each needs the one before
  for (int slot = -1; slot < C::kTopK; ++slot) {
    // Of several lanes that have it the lowest has the lowest expert.
    const uint32_t lanes = platform::ballot(own.key == most);
    const bool is_taken = (lanes & (0u - lanes)) == 1u << cta.lane;
    own.key = is_taken ? own.rest : own.key;
    most = platform::reduce_max(own.key);
    // All else is done while that is on its way.
    if (is_taken)
      platform::st_shared(ids + slot, kPerLane * cta.lane + own.at);
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < kPerLane; ++i)
      key[i] = is_taken ? own.others[i] : key[i];
    own.find(key);
  }
  platform::warp_sync();

  const bool selected = cta.lane < C::kTopK;
  int mine = selected ? platform::ld_shared<int32_t>(ids + cta.lane) : 0;
  if constexpr (C::kRoutingIn >= 0)
    if (const auto *given = static_cast<const int32_t *>(cta.template buffer<C::kRoutingIn>());
        given && selected) {
      mine = platform::ld_const<int32_t>(given + row * C::kTopK + cta.lane);
      platform::st_shared(ids + cta.lane, mine);
    }
  if (unsigned char *out = record_of<C>(cta, row)) {
    using Record = RoutingRecord<C>;
    for (int i = 0; i < kPerLane; ++i) {
      const int expert = kPerLane * cta.lane + i;
      if (Experts::exists(cta.lane, i)) {
        platform::st_global(out + 4 * (Record::kLogits + expert), logit[i]);
        platform::st_global(out + 4 * (Record::kSelection + expert), selection[i]);
      }
    }
    if (selected)
      platform::st_global(out + 4 * (Record::kIds + cta.lane), cta.is_live(row) ? mine : -1);
  }
  return mine;
}

/// The weights of a row, likewise; `mine` is what select_row returned.
template <class C, class Cta> MEGALITH_DEVICE void weigh_slots(const Cta &cta, int row, int mine) {
  constexpr int kSlotLanes = C::kTopK > 8 ? 16 : C::kTopK > 4 ? 8 : 4;
  const uint32_t *logits = C::Logits::row(cta, row);
  const bool selected = cta.lane < C::kTopK;
  const float own = selected ? platform::ld_shared<float>(logits + mine) : 0.0f;
  const auto sum_of = [](float x) {
    for (int mask = 16; mask > 0; mask /= 2)
      x += platform::shfl_xor(x, mask);
    return x;
  };
  // Of the slots' lanes, for them: the others would add zeros.
  const auto sum_of_slots = [](float x) {
    for (int mask = kSlotLanes / 2; mask > 0; mask /= 2)
      x += platform::shfl_xor(x, mask);
    return x;
  };
  const auto most_of = [](float x) {
    for (int mask = 16; mask > 0; mask /= 2)
      x = platform::fmaxf_(x, platform::shfl_xor(x, mask));
    return x;
  };
  float weight;
  if constexpr (C::kWeights == ExpertWeights::softmax) {
    // Added in the order of experts lane, lane + 32, ...
    float most = -3.0e38f, sum = 0;
    for (int i = cta.lane; i < C::kExperts; i += 32)
      most = platform::fmaxf_(most, platform::ld_shared<float>(logits + i));
    most = most_of(most);
    for (int i = cta.lane; i < C::kExperts; i += 32)
      sum += detail::exp_(platform::ld_shared<float>(logits + i) - most);
    weight = detail::exp_(own - most) / sum_of(sum);
  } else if constexpr (C::kWeights == ExpertWeights::softmax_renormalised) {
    // The sum over all experts cancels: exp(x_i) / sum over the selected.
    const float most = most_of(selected ? own : -3.0e38f);
    const float e = selected ? detail::exp_(own - most) : 0.0f;
    weight = e / sum_of_slots(e);
  } else {
    const float logit_of_slot[] = {own};
    float score[1];
    detail::sigmoids(logit_of_slot, score);
    weight = selected ? score[0] : 0.0f;
    if constexpr (C::kWeights == ExpertWeights::sigmoid_renormalised)
      weight = weight / (sum_of_slots(weight) + C::kRenormalizeEps);
  }
  weight = cta.is_live(row) ? weight * C::kWeightScale : 0.0f;
  if (selected) {
    platform::st_shared(weights_of<C>(cta) + row * C::kTopK + cta.lane, weight);
    if (unsigned char *out = record_of<C>(cta, row))
      platform::st_global(out + 4 * (RoutingRecord<C>::kWeights + cta.lane), weight);
  }
}

/// Ids and weights of a row of the table.
template <class C, class Cta>
MEGALITH_DEVICE void route_slots(const Cta &cta, int row, const RouterBias<C> &bias) {
  int32_t *ids = routing_table<C>(cta)->id + row * C::kTopK;
  weigh_slots<C>(cta, row, select_row<C>(cta, row, bias, ids));
  if (!cta.is_live(row) && cta.lane < C::kTopK)
    platform::st_shared(ids + cta.lane, -1);
}

} // namespace detail

/// Consumer: warp r of the first kRows routes row r, of 16 rows also row r + 8: ids and weights of
/// the table, and routing_out. The logits must be visible to the warp. group_experts must follow.
template <class C, class Cta>
MEGALITH_DEVICE void select_experts(const Cta &cta, const RouterBias<C> &bias) {
  if constexpr (C::kRows <= kConsumerWarps) {
    if (cta.role_warp < C::kRows)
      detail::route_slots<C>(cta, cta.role_warp, bias);
  } else {
    MEGALITH_UNROLL(1)
    for (int row = cta.role_warp; row < C::kRows; row += kConsumerWarps)
      detail::route_slots<C>(cta, row, bias);
  }
}

template <class C, class Cta> MEGALITH_DEVICE void select_experts(const Cta &cta) {
  static_assert(C::kBias < 0, "biases are loaded before the poll");
  select_experts<C>(cta, RouterBias<C>{});
}

/// One warp of any role, in place of select_experts and group_experts: routes the only row, each of
/// whose experts has one pair; the lists are in slot order. They are visible to the warp, and to
/// whom it signals; weights follow by weigh_row, for nobody waits for them yet.
template <class C, class Cta>
MEGALITH_DEVICE void route_row(const Cta &cta, const RouterBias<C> &bias) {
  static_assert(C::kRows == 1 && WeighedApart<C>);
  auto *table = routing_table<C>(cta);
  detail::select_row<C>(cta, 0, bias, table->expert);
  if (cta.lane < C::kTopK)
    platform::st_shared(&table->pair[cta.lane], cta.lane);
  if (cta.lane <= C::kTopK)
    platform::st_shared(&table->first[cta.lane], cta.lane);
  if (cta.lane == 0)
    platform::st_shared(&table->active, cta.is_live(0) ? C::kTopK : 0);
  platform::warp_sync();
}
template <class C, class Cta> MEGALITH_DEVICE void route_row(const Cta &cta) {
  static_assert(C::kBias < 0, "biases are loaded before the poll");
  route_row<C>(cta, RouterBias<C>{});
}

/// The same warp, later: the weights.
template <class C, class Cta> MEGALITH_DEVICE void weigh_row(const Cta &cta) {
  const auto *table = routing_table<C>(cta);
  detail::weigh_slots<C>(
      cta, 0, cta.lane < C::kTopK ? platform::ld_shared<int32_t>(&table->expert[cta.lane]) : 0);
  platform::warp_sync();
}

namespace detail {

/// Every warp: the pairs of its rows, r and r + 8, to their places in the list, which is their
/// number of pairs before by (expert, row); a row's experts differ. A lane has one pair and looks
/// at every other row, its neighbour in the other half of the warp at the rest.
template <class C, class Cta> MEGALITH_DEVICE void place_pairs(const Cta &cta) {
  auto *table = routing_table<C>(cta);
  constexpr int kEach = (C::kRows + kConsumerWarps - 1) / kConsumerWarps; // rows of a warp
  MEGALITH_UNROLL(1)
  for (int i = 0; i < kEach; ++i) {
    const int slot = cta.lane % 16, row = cta.role_warp + kConsumerWarps * i;
    const bool exists = slot < C::kTopK && row < C::kRows;
    const int pair = exists ? row * C::kTopK + slot : 0;
    const int expert = platform::ld_shared<int32_t>(&table->id[pair]);
    int place = 0;
    MEGALITH_UNROLL(2)
    for (int other = cta.lane / 16; other < C::kRows; other += 2) {
      // Ids of dead rows, -1, are above all.
      const uint32_t limit = static_cast<uint32_t>(expert) + (other < row ? 1 : 0);
      MEGALITH_UNROLL_ALL
      for (int s = 0; s < C::kTopK; ++s)
        place += platform::ld_shared<uint32_t>(&table->id[other * C::kTopK + s]) < limit ? 1 : 0;
    }
    place += platform::shfl_xor(place, 16);
    if (cta.lane < 16 && exists && expert >= 0)
      platform::st_shared(&table->pair[place], pair);
  }
}

/// One warp: the experts that begin in the list of pairs.
template <class C, class Cta> MEGALITH_DEVICE void list_experts(const Cta &cta) {
  auto *table = routing_table<C>(cta);
  constexpr int kBatches = (RoutingTable<C>::kPairs + 31) / 32;
  const int pairs = C::kTopK * platform::popcount(cta.live);
  int expert[kBatches];
  MEGALITH_UNROLL_ALL
  for (int b = 0; b < kBatches; ++b) {
    const int at = 32 * b + cta.lane;
    const int pair = at < pairs ? platform::ld_shared<int32_t>(&table->pair[at]) : 0;
    expert[b] = at < pairs ? platform::ld_shared<int32_t>(&table->id[pair]) : -1;
  }
  int active = 0, last = -1;
  MEGALITH_UNROLL_ALL
  for (int b = 0; b < kBatches; ++b) {
    const int at = 32 * b + cta.lane;
    const int left = platform::shfl(expert[b], (cta.lane + 31) % 32);
    const bool begins = at < pairs && expert[b] != (cta.lane > 0 ? left : last);
    last = platform::shfl(expert[b], 31);
    const uint32_t beginning = platform::ballot(begins);
    if (begins) {
      const int a = active + platform::popcount(beginning & ((1u << cta.lane) - 1));
      platform::st_shared(&table->expert[a], expert[b]);
      platform::st_shared(&table->first[a], at);
    }
    active += platform::popcount(beginning);
  }
  if (cta.lane == 0) {
    platform::st_shared(&table->active, active);
    platform::st_shared(&table->first[active], pairs);
  }
}

} // namespace detail

/// Consumer: makes the table's lists from the rows' ids. All consumer warps call; at the end the
/// table is visible to all of them.
template <class C, class Cta> MEGALITH_DEVICE void group_experts(const Cta &cta) {
  consumer_sync(); // all rows' ids
  detail::place_pairs<C>(cta);
  consumer_sync(); // the list
  if (cta.role_warp == 0)
    detail::list_experts<C>(cta);
  consumer_sync();
}

} // namespace megalith
