//===- AttentionTest.cpp - The attention stage on the host platform -------===//
//
// The test kernels against a double-precision reference written here. Each run is two chained
// launches on the same step, so that sets, re-arming, epochs and overlap take part.
//
//===----------------------------------------------------------------------===//

#include "models/weights/bf16.h"
#include "models/weights/block_codec.h"
#include "runtime/host/machine.h"
#include "runtime/packing.h"
#include "tests/codegen/device/AttentionKernel.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <vector>

using namespace megalith;
using models::fromBf16;
using models::toBf16;

#define MEGALITH_TEST_KERNEL(name) extern "C" const host::KernelRecord megalith_kernel_##name
MEGALITH_TEST_KERNEL(grouped8);
MEGALITH_TEST_KERNEL(grouped4);
MEGALITH_TEST_KERNEL(grouped4_one_row);
MEGALITH_TEST_KERNEL(single);
MEGALITH_TEST_KERNEL(one_row);
MEGALITH_TEST_KERNEL(wide);
MEGALITH_TEST_KERNEL(rounds);
MEGALITH_TEST_KERNEL(codes8);
MEGALITH_TEST_KERNEL(codes_one_row);
MEGALITH_TEST_KERNEL(codes_wide);
MEGALITH_TEST_KERNEL(codes_few);
MEGALITH_TEST_KERNEL(codes_rounds);

namespace {

constexpr uint64_t kLaunch = 42;
constexpr double kTheta = 1e6;

/// A sequence of the step; all its numbers follow from `seed` and the position.
struct Sequence {
  int start, rows;
  uint64_t seed;
};

enum Kind { kOldKey, kOldValue, kRaw, kGainOfQ, kGainOfK };

/// A random bf16 in [-1, 1).
uint16_t random16(uint64_t seed, Kind kind, int position, int index) {
  uint64_t x = seed * 0x9E3779B97F4A7C15ull + uint64_t(kind) * 0xD1B54A32D192ED03ull +
               uint64_t(position) * 0x8CB92BA72F3D8DD7ull + uint64_t(index);
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  x ^= x >> 31;
  return toBf16(float(x >> 40) / float(1 << 23) - 1.0f);
}

template <class K> struct Run {
  using A = typename K::attention;
  static constexpr int kDim = A::kHeadDim;
  static constexpr int kQkvWidth = K::S::kQkvWidth, kAttnWidth = A::kQHeads * kDim;

  std::vector<Sequence> sequences;
  alignas(16) StepDescriptor step = {};
  std::vector<int32_t> pages;
  int pagesEach = 12; // of a sequence
  static constexpr bool kIsE4m3 = A::kIsE4m3;
  runtime::KvLayout layout{A::kKvHeads, kDim, kIsE4m3 ? 1 : 2};
  // Of keys, of values; neither divides numbers exactly.
  std::vector<float> kScale{A::kIsScaled ? 0.7f : 1.0f}, vScale{A::kIsScaled ? 0.03f : 1.0f};
  std::vector<unsigned char> pool, poolBefore;
  std::vector<uint16_t> gainOfQ, gainOfK, qkv;
  std::vector<float> frequencies;
  std::vector<uint32_t> attn;
  std::vector<U128> partials;

  explicit Run(std::vector<Sequence> list) : sequences(std::move(list)) {
    step.launch_base = kLaunch - 2;
    for (int &seq : step.row_seq)
      seq = -1;
    const int count = int(sequences.size());
    for (const Sequence &sequence : sequences)
      pagesEach = std::max(pagesEach, (sequence.start + sequence.rows + 63) / 64);
    const int poolPages = count * pagesEach + 1; // one page is nobody's
    std::vector<bool> used(poolPages);
    for (int i = 0; i < count * pagesEach; ++i) { // distinct pages in no order
      int page = (5 * i + 3) % poolPages;
      while (used[page])
        page = (page + 1) % poolPages;
      used[page] = true;
      pages.push_back(page);
    }
    pool.resize(poolPages * layout.pageBytes());
    host::poison(pool.data(), pool.size());
    qkv.assign(3 * A::kRows * kQkvWidth, 0x1234);
    for (int i = 0; i < kDim; ++i) {
      gainOfQ.push_back(toBf16(1.0f + 0.5f * fromBf16(random16(1, kGainOfQ, 0, i))));
      gainOfK.push_back(toBf16(1.0f + 0.5f * fromBf16(random16(1, kGainOfK, 0, i))));
    }
    frequencies = runtime::inverseFrequencies(A::kRopeDim > 0 ? A::kRopeDim : 2, kTheta);
    for (int s = 0; s < count; ++s) {
      const Sequence &seq = sequences[s];
      step.seq[s] = {step.live_rows, seq.rows, seq.start};
      for (int p = 0; p < seq.start; ++p) {
        std::vector<uint16_t> key(A::kKvHeads * kDim), value(key.size());
        for (size_t i = 0; i < key.size(); ++i) {
          key[i] = random16(seq.seed, kOldKey, p, int(i));
          value[i] = random16(seq.seed, kOldValue, p, int(i));
        }
        runtime::writeKv(layout, pool.data(), pagesOf(s), p, key, value);
      }
      for (int r = 0; r < seq.rows; ++r) {
        const int row = step.live_rows++;
        step.row_seq[row] = s;
        step.row_pos[row] = seq.start + r;
        // What launches kLaunch - 1 and kLaunch would have published.
        for (int set : {int((kLaunch - 1) % 3), int(kLaunch % 3)})
          for (int i = 0; i < kQkvWidth; ++i)
            qkv[(set * A::kRows + row) * kQkvWidth + i] = raw(s, r, i);
      }
    }
    step.sequences = count;
    poolBefore = pool;
    attn.assign(2 * A::kRows * kAttnWidth / 2, 0x12341234u);
    std::fill_n(attn.begin() + kLaunch % 2 * A::kRows * kAttnWidth / 2, A::kRows * kAttnWidth / 2,
                0xFFFFFFFFu);
    partials.resize(K::partials::kCount);
  }

  std::span<const int32_t> pagesOf(int s) const {
    return std::span(pages).subspan(s * pagesEach, pagesEach);
  }
  uint16_t raw(int s, int r, int i) const {
    return random16(sequences[s].seed, kRaw, sequences[s].start + r, i);
  }

  void launch(const host::KernelRecord &kernel, uint64_t seed, int chaos) {
    host::Machine machine(
        {.sms = A::kSms, .smem_bytes = K::kSmemBytes, .seed = seed, .chaos = chaos});
    LaunchArgs args = {};
    args.step = &step;
    args.page_table = pages.data();
    args.max_pages = pagesEach;
    const auto bind = [&](int slot, auto &data, const char *name, host::Access access) {
      args.buffer[slot] = data.data();
      machine.registerBuffer(data.data(), data.size() * sizeof(data[0]), name, access);
    };
    machine.registerBuffer(&step, sizeof step, "step", host::Access::read);
    machine.registerBuffer(pages.data(), 4 * pages.size(), "page_table", host::Access::read);
    bind(test::kPool, pool, "pool", host::Access::read_write);
    bind(test::kInvFreq, frequencies, "inv_freq", host::Access::read);
    bind(test::kQGain, gainOfQ, "q_gain", host::Access::read);
    bind(test::kKGain, gainOfK, "k_gain", host::Access::read);
    bind(test::kKScale, kScale, "k_scale", host::Access::read);
    bind(test::kVScale, vScale, "v_scale", host::Access::read);
    bind(test::kQkv, qkv, "qkv", host::Access::read_write);
    bind(test::kPartials, partials, "partials", host::Access::read_write);
    bind(test::kAttn, attn, "attn", host::Access::read_write);
    args.launch_in_step = 2;
    LaunchArgs next = args;
    next.launch_in_step = 3;
    auto report = machine.run({{&kernel, args}, {&kernel, next}});
    if (!report)
      FAIL(llvm::toString(report.takeError()));
  }

  uint16_t output(uint64_t n, int row, int channel) const {
    const uint32_t word = attn[(n % 2 * A::kRows + row) * (kAttnWidth / 2) + channel / 2];
    return uint16_t(channel % 2 ? word >> 16 : word);
  }
  std::vector<uint16_t> outputs(int row) const {
    std::vector<uint16_t> all(kAttnWidth);
    for (int i = 0; i < kAttnWidth; ++i)
      all[i] = output(kLaunch + 1, row, i);
    return all;
  }

  /// What pages hold of a number, times the scale; `isOld`: it was written as it is.
  static double kept(double x, float scale, bool isOld = false) {
    if (!kIsE4m3)
      return x;
    const float divided = isOld ? float(x) : float(x) / scale;
    return double(models::e4m3Value(models::e4m3Bits(divided))) * scale;
  }

  /// Norm, rounding, rotation, rounding of one raw head, in double.
  std::vector<double> head(int s, int r, int first, const std::vector<uint16_t> &gain) const {
    std::vector<double> x(kDim);
    double squares = 0;
    for (int i = 0; i < kDim; ++i) {
      x[i] = fromBf16(raw(s, r, first + i));
      squares += x[i] * x[i];
    }
    if (A::kQkNorm != QkNorm::none)
      for (int i = 0; i < kDim; ++i) {
        const double weight = A::kQkNorm == QkNorm::weighted ? fromBf16(gain[i]) : 1.0;
        x[i] = fromBf16(toBf16(float(x[i] / std::sqrt(squares / kDim + 1e-6) * weight)));
      }
    for (int j = 0; j < A::kRopeDim / 2; ++j) {
      const double angle = float(sequences[s].start + r) * frequencies[j]; // an fp32 product
      const double a = x[j], b = x[j + A::kRopeDim / 2], c = std::cos(angle), w = std::sin(angle);
      x[j] = fromBf16(toBf16(float(a * c - b * w)));
      x[j + A::kRopeDim / 2] = fromBf16(toBf16(float(b * c + a * w)));
    }
    return x;
  }

  /// Root mean square of (output - reference) over that of the reference, all rows of a sequence.
  double error(int s) const {
    const Sequence &seq = sequences[s];
    double difference = 0, size = 0;
    for (int h = 0; h < A::kKvHeads; ++h) {
      std::vector<std::vector<double>> keys, values;
      for (int p = 0; p < seq.start + seq.rows; ++p) {
        std::vector<double> key(kDim), value(kDim);
        if (p < seq.start) {
          for (int i = 0; i < kDim; ++i) {
            key[i] = kept(fromBf16(random16(seq.seed, kOldKey, p, h * kDim + i)), kScale[0], true);
            value[i] =
                kept(fromBf16(random16(seq.seed, kOldValue, p, h * kDim + i)), vScale[0], true);
          }
        } else {
          key = head(s, p - seq.start, (A::kQHeads + h) * kDim, gainOfK);
          for (int i = 0; i < kDim; ++i) {
            key[i] = kept(key[i], kScale[0]);
            value[i] =
                kept(fromBf16(raw(s, p - seq.start, (A::kQHeads + A::kKvHeads + h) * kDim + i)),
                     vScale[0]);
          }
        }
        keys.push_back(key);
        values.push_back(value);
      }
      for (int r = 0; r < seq.rows; ++r)
        for (int q = h * K::S::kGroup; q < (h + 1) * K::S::kGroup; ++q) {
          const std::vector<double> query = head(s, r, q * kDim, gainOfQ);
          std::vector<double> result(kDim);
          double sum = 0;
          for (int p = 0; p <= seq.start + r; ++p) {
            double score = 0;
            for (int i = 0; i < kDim; ++i)
              score += query[i] * keys[p][i];
            const double weight = std::exp(score * K::kScale);
            sum += weight;
            for (int i = 0; i < kDim; ++i)
              result[i] += weight * values[p][i];
          }
          for (int i = 0; i < kDim; ++i) {
            const double want = result[i] / sum;
            const double got =
                fromBf16(output(kLaunch + 1, step.seq[s].first_row + r, q * kDim + i));
            difference += (got - want) * (got - want);
            size += want * want;
          }
        }
    }
    return std::sqrt(difference / size);
  }

  /// The pool has the new positions, K within a rounding of the reference and V exactly, and is
  /// otherwise as before.
  void checkPool() {
    std::vector<unsigned char> expected = poolBefore;
    for (int s = 0; s < step.sequences; ++s)
      for (int r = 0; r < sequences[s].rows; ++r) {
        const int p = sequences[s].start + r;
        std::vector<uint16_t> key(A::kKvHeads * kDim), value(key.size());
        runtime::readKv(layout, pool.data(), pagesOf(s), p, key, value);
        for (int h = 0; h < A::kKvHeads; ++h) {
          const std::vector<double> want = head(s, r, (A::kQHeads + h) * kDim, gainOfK);
          for (int i = 0; i < kDim; ++i) {
            const double got = fromBf16(key[h * kDim + i]) * kScale[0];
            // fp32 and double may fall on either side of a tie, before and after the rotation; then
            // the neighbouring code may be the nearest.
            const double wanted = kept(want[i], kScale[0]), apart = kIsE4m3 ? 0.13 : 0.01;
            CHECK(std::abs(got - wanted) <= apart * std::abs(wanted) + 0.01);
            const auto in = [&](int head, float scale) {
              const uint16_t given = raw(s, r, head * kDim + i);
              return kIsE4m3 ? toBf16(models::e4m3Value(models::e4m3Bits(fromBf16(given) / scale)))
                             : given;
            };
            if (A::kQkNorm == QkNorm::none && A::kRopeDim == 0)
              REQUIRE(key[h * kDim + i] == in(A::kQHeads + h, kScale[0]));
            REQUIRE(value[h * kDim + i] == in(A::kQHeads + A::kKvHeads + h, vScale[0]));
          }
        }
        runtime::writeKv(layout, expected.data(), pagesOf(s), p, key, value);
      }
    CHECK((pool == expected));
  }

  void check() {
    for (int s = 0; s < step.sequences; ++s) {
      CAPTURE(s, sequences[s].start, sequences[s].rows);
      CHECK(error(s) <= 4e-3);
    }
    for (int row = 0; row < A::kRows; ++row)
      for (int i = 0; i < kAttnWidth; ++i) {
        if (row >= step.live_rows)
          REQUIRE(output(kLaunch + 1, row, i) == 0);
        REQUIRE(output(kLaunch, row, i) == 0xFFFF); // emptied by the second launch
      }
    checkPool();
  }
};

template <class K>
Run<K> attend(const host::KernelRecord &kernel, std::vector<Sequence> sequences, uint64_t seed = 1,
              int chaos = 1) {
  Run<K> run(std::move(sequences));
  run.launch(kernel, seed, chaos);
  return run;
}

constexpr int kLengths[] = {1, 15, 16, 17, 63, 64, 65, 129, 700};

} // namespace

TEST_CASE("one row at each length of context") {
  for (int n : kLengths) {
    attend<test::OneRow>(megalith_kernel_one_row, {{n - 1, 1, uint64_t(n)}}).check();
    attend<test::Grouped4>(megalith_kernel_grouped4, {{n - 1, 1, uint64_t(n)}}).check();
    attend<test::Single>(megalith_kernel_single, {{n - 1, 1, uint64_t(n)}}).check();
  }
  attend<test::Wide>(megalith_kernel_wide, {{128, 1, 3}, {15, 1, 4}}).check();
}

TEST_CASE("several rows of a sequence see each other, causally") {
  for (int start : {0, 9, 15, 57, 121, 505})
    attend<test::Grouped4>(megalith_kernel_grouped4, {{start, 8, uint64_t(start)}}).check();
  for (int rows = 1; rows <= 4; ++rows)
    attend<test::Single>(megalith_kernel_single, {{63, rows, uint64_t(rows)}}).check();
  attend<test::Grouped8>(megalith_kernel_grouped8, {{62, 8, 5}}).check();
  // 1 to 12 column tiles of 8 query vectors: any split of the warps into columns and chunks.
  for (int rows : {1, 2, 3, 4, 5, 6, 8})
    attend<test::Rounds>(megalith_kernel_rounds, {{600 + rows, rows, uint64_t(rows)}}).check();
}

TEST_CASE("sequences of different lengths in one step; dead rows are zero") {
  attend<test::Grouped8>(megalith_kernel_grouped8, {{697, 3, 1}, {15, 2, 2}, {0, 1, 3}}).check();
  attend<test::Grouped4>(megalith_kernel_grouped4,
                         {{699, 1, 1}, {128, 1, 2}, {64, 1, 3}, {63, 1, 4}, {0, 1, 5}, {16, 2, 6}})
      .check();
}

TEST_CASE("a row's bits depend on neither other sequences nor the scheduler") {
  const Sequence a{129, 2, 7}, b{33, 1, 8};
  const auto alone = attend<test::Grouped4>(megalith_kernel_grouped4, {a});
  const auto mixed = attend<test::Grouped4>(megalith_kernel_grouped4, {b, a, a, b}, 99, 2);
  CHECK((mixed.outputs(1) == alone.outputs(0)));
  CHECK((mixed.outputs(2) == alone.outputs(1)));
  // The same sequence twice: identical rows.
  CHECK((mixed.outputs(3) == mixed.outputs(1)));
  CHECK((mixed.outputs(4) == mixed.outputs(2)));
  CHECK((mixed.outputs(5) == mixed.outputs(0)));
  CHECK((mixed.outputs(0) != mixed.outputs(1)));
}

TEST_CASE("a row's bits depend on neither bucket, number of SMs nor merge parts") {
  for (int start : {0, 40, 699}) {
    const Sequence a{start, 1, uint64_t(start)};
    const auto eight = attend<test::Grouped4>(megalith_kernel_grouped4, {{70, 2, 5}, a});
    const auto one = attend<test::Grouped4OneRow>(megalith_kernel_grouped4_one_row, {a});
    CHECK((eight.outputs(2) == one.outputs(0)));
  }
}

TEST_CASE("splits that are a tile together have the bits of splits alone") {
  // 1, 2, 3 and 4 or 5 units of a split; sequences of about one length, so that tiles are
  // neighbours and have up to eight splits. Some tails lie in two splits.
  for (int start : {300, 508, 1519, 2040}) {
    std::vector<Sequence> sequences;
    for (int s = 0; s < 8; ++s)
      sequences.push_back({start + 3 * s, 1, uint64_t(start + s)});
    auto together = attend<test::Grouped4>(megalith_kernel_grouped4, sequences);
    together.check();
    for (int s : {0, 6}) {
      const auto alone =
          attend<test::Grouped4OneRow>(megalith_kernel_grouped4_one_row, {sequences[size_t(s)]});
      INFO("start " << start << ", sequence " << s);
      CHECK((together.outputs(s) == alone.outputs(0)));
    }
  }
  // Two rows of a sequence.
  attend<test::Grouped4>(megalith_kernel_grouped4,
                         {{511, 2, 1}, {510, 2, 2}, {640, 2, 3}, {600, 2, 4}})
      .check();
}

TEST_CASE("pages of e4m3, at each length of context") {
  for (int n : kLengths) {
    attend<test::CodesOneRow>(megalith_kernel_codes_one_row, {{n - 1, 1, uint64_t(n)}}).check();
    attend<test::Codes8>(megalith_kernel_codes8, {{n - 1, 1, uint64_t(n)}}).check();
  }
  attend<test::CodesWide>(megalith_kernel_codes_wide, {{128, 1, 3}, {15, 1, 4}}).check();
}

TEST_CASE("rows of a sequence read each other's keys as e4m3") {
  for (int start : {0, 9, 15, 57, 121, 505})
    attend<test::Codes8>(megalith_kernel_codes8, {{start, 8, uint64_t(start)}}).check();
  attend<test::Codes8>(megalith_kernel_codes8, {{697, 3, 1}, {15, 2, 2}, {0, 1, 3}}).check();
  for (int rows : {1, 3, 5, 8})
    attend<test::CodesRounds>(megalith_kernel_codes_rounds, {{600 + rows, rows, uint64_t(rows)}})
        .check();
}

TEST_CASE("a result does not depend on whether an e4m3 key comes from the page") {
  // One step of three rows, or the first two in the pages before and then the third.
  const auto together = attend<test::CodesFew>(megalith_kernel_codes_few, {{61, 3, 9}});
  auto apart = Run<test::CodesFew>({{63, 1, 9}});
  for (int p : {61, 62}) {
    std::vector<uint16_t> key(64), value(64);
    runtime::readKv(together.layout, together.pool.data(), together.pagesOf(0), p, key, value);
    runtime::writeKv(apart.layout, apart.pool.data(), apart.pagesOf(0), p, key, value);
  }
  apart.poolBefore = apart.pool;
  apart.launch(megalith_kernel_codes_few, 1, 1);
  CHECK((apart.outputs(0) == together.outputs(2)));
}

TEST_CASE("e4m3 as the host platform has it") {
  for (uint32_t code = 0; code < 256; ++code) {
    const float value = models::e4m3Value(code);
    const u32x2 wide = platform::widen_e4m3(code | (255 - code) << 8 | code << 16 | code << 24);
    const float all[] = {lo16(wide.x), hi16(wide.x), lo16(wide.y), hi16(wide.y)};
    const float other = models::e4m3Value(255 - code);
    CHECK((std::isnan(value) ? std::isnan(all[0]) : all[0] == value));
    CHECK((std::isnan(other) ? std::isnan(all[1]) : all[1] == other));
    CHECK((std::isnan(value) ? std::isnan(all[3]) : all[2] == value && all[3] == value));
    if ((code & 0x7F) < 0x7E) { // around the midpoint to the next
      const float middle = (value + models::e4m3Value(code + 1)) / 2;
      for (float x : {std::nextafter(middle, 0.0f), middle, std::nextafter(middle, middle * 2)})
        CHECK(platform::e4m3x2(x, -x) == (models::e4m3Bits(x) | models::e4m3Bits(-x) << 8));
    }
  }
  const float huge = 1e30f, inf = INFINITY;
  CHECK(platform::e4m3x2(huge, -huge) == 0xFE7E);
  CHECK(platform::e4m3x2(inf, -inf) == 0xFE7E);
  CHECK((platform::e4m3x2(NAN, 464.0f) & 0xFF7F) == 0x7E7F);
}

TEST_CASE("any schedule and any order of visibility gives the same bits") {
  const std::vector<Sequence> list = {{200, 2, 1}, {14, 2, 2}};
  const auto first = attend<test::Single>(megalith_kernel_single, list, 1, 0);
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    const auto other = attend<test::Single>(megalith_kernel_single, list, seed, 1 + seed % 2);
    for (int row = 0; row < 4; ++row)
      CHECK((other.outputs(row) == first.outputs(row)));
    CHECK((other.pool == first.pool));
  }
}

TEST_CASE("sin and cos of large angles") {
  double worst = 0;
  for (int i = 0; i < 400000; ++i) {
    const float angle = i < 1000 ? float(i) * 0.01f : std::ldexp(float(i), 1 + i % 5) * 0.37f;
    if (angle > 1e7f)
      continue;
    float s, c;
    sin_cos(angle, s, c);
    worst = std::max(
        {worst, std::abs(s - std::sin(double(angle))), std::abs(c - std::cos(double(angle)))});
  }
  CHECK(worst <= 1e-7);
  float s, c;
  sin_cos(0.0f, s, c);
  CHECK((s == 0.0f && c == 1.0f));
}
