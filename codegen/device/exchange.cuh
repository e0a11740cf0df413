// Exchanges between SMs through global memory: self-validating words and epoch words.
//
// Words: a b32 is its own arrival; 0xFFFFFFFF means "not yet", and no store writes it because NaNs
// are stored in one form. Two sets serve an exchange read in the launch that writes it; three one
// that the next launch reads too, for that launch may still poll while this one re-arms.
// Epoch words: a b128 carries three fp32 and the launch it belongs to, so it needs no re-arming.
#pragma once

#include "codegen/device/edges.cuh"
#include "codegen/device/rows.cuh"

namespace megalith {

inline constexpr uint32_t kEmptyWord = 0xFFFFFFFFu;

/// Words `[Sets][Count][Width]` in buffer slot `Buffer`: Count rows of Width b32. A bf16 word holds
/// channels (2i, 2i+1), the lower in the low half; an fp32 word one value. One set: only launches
/// after the one that stores them read them (LaunchEdge).
template <int Buffer, int Count, int Width, int Sets> struct Words {
  static constexpr int kBuffer = Buffer, kCount = Count, kWidth = Width, kSets = Sets;
  static constexpr uint32_t kSetWords = Count * Width;
  static constexpr bool kOfRanks = false; // ranks.cuh
  static constexpr int kOwn = Width;      // words of a row that this rank stores
  static_assert(Sets >= 1 && Sets <= 3, "1: LaunchEdge; 2: in-launch; 3: crossing");
};

/// Base of an emitted edge over the words of X:
///   struct h_words : WordsEdge<2, h> { static constexpr char kName[] = "h_words"; };
template <int Id, class X> struct WordsEdge {
  using Exchange = X;
  static constexpr int kId = Id;
  static constexpr bool kIsProof = true; // a word that is there says so itself
  static constexpr bool kOfRanks = X::kOfRanks;
  static constexpr uint32_t kAge = 0; // launches since the words were stored
};

/// Base of an emitted edge between launches: an earlier one stored all words of X, this one only
/// reads them, or the other way round. Nothing in a word proves it; the reader's launch_wait comes
/// before its first poll, which then is a copy.
template <int Id, class X> struct LaunchEdge {
  using Exchange = X;
  static constexpr int kId = Id;
  static constexpr bool kIsProof = false;
  static constexpr uint32_t kAge = 0; // there is one set
};

/// The edge E from the launch before, over crossing words: what n-1 stored, n reads.
template <class E> struct Previous : E {
  static constexpr uint32_t kAge = 1;
  static_assert(E::Exchange::kSets == 3, "only crossing words outlive their launch");
};

/// What lies behind the first `First` words of each row of E's exchange.
template <class E, int First> struct Behind : E {
  static constexpr int kFirst = First;
  static_assert(First % 4 == 0 && First < E::Exchange::kWidth);
};

/// The first word of a row that E means; the others end with the row.
template <class E> MEGALITH_DEVICE constexpr int first_word() {
  if constexpr (requires { E::kFirst; })
    return E::kFirst;
  else
    return 0;
}
/// Words of a row that E means.
template <class E> inline constexpr int kRowWords = E::Exchange::kWidth - first_word<E>();

/// Scope of the accesses to an exchange's words, on both sides.
template <class X>
inline constexpr platform::Scope kScopeOf =
    X::kOfRanks ? platform::Scope::sys : platform::Scope::gpu;

/// First word of a row that is of this rank's share.
template <class X, class Cta> MEGALITH_DEVICE int own_first(const Cta &cta) {
  return X::kOfRanks ? cta.rank * X::kOwn : 0;
}

/// Part of a range of words.
struct Share {
  int first, end;
};

/// The share of SM `sm` in `words` words, split evenly over all SMs in whole 32 B sectors.
template <class Cta> MEGALITH_DEVICE Share share_of(int sm, int words) {
  constexpr int kSms = Cta::Config::kSms;
  const int size = ((words + kSms - 1) / kSms + 7) / 8 * 8, first = size * sm;
  return {first, first + size < words ? first + size : words};
}

/// The set that launch n - age writes; age <= 2.
template <class X, class Cta> MEGALITH_DEVICE uint32_t set_index(const Cta &cta, uint32_t age) {
  uint32_t set = 0;
  if constexpr (X::kSets == 2)
    set = (static_cast<uint32_t>(cta.n) - age) & 1;
  else if constexpr (X::kSets == 3)
    set = cta.n_mod_3 >= age ? cta.n_mod_3 - age : cta.n_mod_3 + 3 - age;
  return set;
}
template <class X, class Cta> MEGALITH_DEVICE uint32_t *set_of(const Cta &cta, uint32_t age) {
  return static_cast<uint32_t *>(cta.template buffer<X::kBuffer>()) +
         set_index<X>(cta, age) * X::kSetWords;
}

namespace detail {
/// One warp empties words [first, end). Out of line: a kernel re-arms all exchanges of its plan.
MEGALITH_COLD void empty_words(uint32_t *set, int first, int end) {
  MEGALITH_UNROLL(1)
  for (int i = first; i < end; i += 32)
    platform::st_relaxed<platform::Scope::gpu, uint32_t>(set + i, kEmptyWord);
}
/// What the mark of a re-arming names: the exchange has no edge here, but a slot.
template <class X> struct RearmedSlot {
  static constexpr char kName[] = {'s', 'l', 'o', 't', '0' + X::kBuffer / 10, '0' + X::kBuffer % 10,
                                   '\0'};
};
} // namespace detail

/// Poller, after launch_wait: empties this SM's share of the set that launch n+1 writes. Everyone
/// who reads that set's old words is done: launch n-1 for two sets, n-2 and n-1 for three.
template <class X, class Cta> MEGALITH_DEVICE void rearm(const Cta &cta) {
  const Share share = share_of<Cta>(cta.sm, X::kSetWords);
  platform::mark<platform::verb::Rearm, detail::RearmedSlot<X>>();
  detail::empty_words(set_of<X>(cta, X::kSets - 1), share.first + cta.lane, share.end);
  platform::mark_end();
}

namespace detail {
inline constexpr uint32_t kNanPair = 0x7FFF7FFFu;
MEGALITH_DEVICE uint32_t canonical16(uint32_t bits) {
  return (bits & 0x7FFFu) > 0x7F80u ? 0x7FC0u : bits;
}
} // namespace detail

/// Two bf16 in a word, channel 2i in the low half, with every NaN as 0x7FC0.
MEGALITH_DEVICE uint32_t canonical_pair(uint32_t pair) {
  return detail::canonical16(pair & 0xFFFFu) | detail::canonical16(pair >> 16) << 16;
}

/// Word of two bf16 that r16x2 has rounded. NaNs stay as the machine's conversion left them, 0x7FFF
/// on all that were seen; PTX does not promise that two of them are no kEmptyWord.
MEGALITH_DEVICE uint32_t rounded_word(uint32_t pair) {
  return pair == kEmptyWord ? detail::kNanPair : pair;
}
/// Word of channels (2i, 2i+1), rounded to bf16.
MEGALITH_DEVICE uint32_t pair_word(float low, float high) {
  return rounded_word(r16x2(low, high));
}

/// Word of an fp32 value, NaN as 0x7FC00000.
MEGALITH_DEVICE uint32_t float_word(float value) {
  return value != value ? 0x7FC00000u : float_to_bits(value);
}

/// Replicas that the words of X have.
template <class X> MEGALITH_DEVICE constexpr int replicas_of() {
  if constexpr (X::kOfRanks)
    return X::kRanks;
  else
    return 1;
}

/// The `i`-th replica of X that a word is stored to. The own one first: nobody is nearer. Then all
/// others, each rank beginning with another.
template <class X, class Cta> MEGALITH_DEVICE uint32_t *replica_of(const Cta &cta, int i) {
  if constexpr (X::kOfRanks)
    return static_cast<uint32_t *>(
        cta.template replica<X::kPeer>((cta.rank + i) & (X::kRanks - 1)));
  else
    return static_cast<uint32_t *>(cta.template buffer<X::kBuffer>());
}

/// Stores one word of this launch's set, on all ranks if it is one of ranks. One lane; `word`
/// counts from the rank's share; `value` comes from pair_word or float_word.
template <class E, class Cta>
MEGALITH_DEVICE void publish(const Cta &cta, int row, int word, uint32_t value) {
  static_assert(E::kAge == 0, "a launch writes its own set");
  using X = typename E::Exchange;
  const uint32_t place =
      set_index<X>(cta, 0) * X::kSetWords + row * X::kWidth + own_first<X>(cta) + word;
  MEGALITH_UNROLL_ALL
  for (int i = 0; i < replicas_of<X>(); ++i)
    platform::st_relaxed<kScopeOf<X>, uint32_t>(replica_of<X>(cta, i) + place, value);
}

/// Where this lane stores words of one row of E that its warp will have: word `word` + i, if i <
/// words, in the Lanes lanes from i * Lanes on, which share the stores to the ranks. To be made
/// before the words are there: what it looks up may come from far away.
template <class E, int Lanes> class PublishPlaces {
  static_assert(E::kAge == 0, "a launch writes its own set");
  using X = typename E::Exchange;
  static constexpr int kStores = (replicas_of<X>() + Lanes - 1) / Lanes;
  uint32_t *at[kStores]; // null: none

public:
  template <class Cta> MEGALITH_DEVICE PublishPlaces(const Cta &cta, int row, int word, int words) {
    const int mine = cta.lane / Lanes;
    const uint32_t place =
        set_index<X>(cta, 0) * X::kSetWords + row * X::kWidth + own_first<X>(cta) + word + mine;
    MEGALITH_UNROLL_ALL
    for (int store = 0; store < kStores; ++store) {
      const int i = store * Lanes + cta.lane % Lanes;
      at[store] = mine < words && i < replicas_of<X>() ? replica_of<X>(cta, i) + place : nullptr;
      platform::forget(at[store]); // else it were looked up where it is used
    }
  }

  /// Each lane of a word calls with its value, which comes from pair_word or float_word.
  MEGALITH_DEVICE void store(uint32_t value) const {
    MEGALITH_UNROLL_ALL
    for (uint32_t *place : at)
      if (place)
        platform::st_relaxed<kScopeOf<X>, uint32_t>(place, value);
  }
};

/// After words [first, first + count) of rows have been polled. Test hook: what came from another
/// rank has RanksArgs::hop_ns more to go, counted from when the last of the words was seen; words
/// of this rank alone have not.
template <class X, class Cta> MEGALITH_DEVICE void await_hop(const Cta &cta, int first, int count) {
  if constexpr (X::kOfRanks) {
    const int own = own_first<X>(cta);
    if (cta.hop_ns == 0 || (first >= own && first + count <= own + X::kOwn))
      return;
    const uint64_t until = platform::now_ns() + cta.hop_ns;
    while (platform::now_ns() < until)
      ;
  }
}

/// One lane waits for one word of E; `word` counts from the rank's share, which has no hop to go.
template <class E, class Cta>
MEGALITH_DEVICE uint32_t poll_word(const Cta &cta, int row, int word) {
  using X = typename E::Exchange;
  const uint32_t *source = set_of<X>(cta, E::kAge) + row * X::kWidth + own_first<X>(cta) + word;
  uint32_t value = platform::ld_relaxed<kScopeOf<X>, uint32_t>(source);
  if constexpr (!E::kIsProof)
    return value;
  Patience patience;
  while (value == kEmptyWord) {
    if (patience.lost(cta))
      platform::fail(cta.args.fault, E::kId, row * X::kWidth + word, value, cta.n);
    platform::poll_pause(source);
    value = platform::ld_relaxed<kScopeOf<X>, uint32_t>(source);
  }
  return value;
}

namespace detail {

MEGALITH_DEVICE bool arrived(const u32x4 &v) {
  return v.x != kEmptyWord && v.y != kEmptyWord && v.z != kEmptyWord && v.w != kEmptyWord;
}

inline constexpr int kPollsInFlight = 8; // loads a lane issues before it looks at the first

} // namespace detail

namespace detail {

/// What poll_vectors brings: vector i of `total` lies in row i / vectors of the source and the
/// target.
struct VectorBlock {
  const uint32_t *source;
  unsigned char *target;
  int total, vectors;    // of all rows, of a row
  uint32_t reciprocal;   // ceil(2^32 / vectors): i / vectors without dividing, exact for i < 2^16
  uint32_t width, pitch; // words between rows of the source, bytes between rows of the target
  uint32_t first;        // word of the set that the source begins with, for the fault record

  MEGALITH_DEVICE int row(int i) const {
    return vectors == 1 ? i
                        : static_cast<int>((uint64_t{static_cast<uint32_t>(i)} * reciprocal) >> 32);
  }
  MEGALITH_DEVICE const uint32_t *from(int i) const {
    return source + row(i) * width + 4 * (i - row(i) * vectors);
  }
  MEGALITH_DEVICE unsigned char *to(int i) const {
    return target + row(i) * pitch + 16 * (i - row(i) * vectors);
  }
};

/// One warp copies the block as its words arrive; a sweep reads only what is missing. Out of line:
/// a kernel has one for all its edges.
MEGALITH_COLD void poll_vectors(const LaunchArgs &args, VectorBlock block, int lane, uint32_t edge,
                                uint64_t n) {
  constexpr int kLoads = kPollsInFlight, kGroups = 32 / kLoads;
  constexpr uint32_t kGroupMask = (1u << kLoads) - 1;
  // 32 vectors a lane at a time: bit u of `missing` is vector window + 32 * u + lane.
  for (int window = 0; window < block.total; window += 32 * 32) {
    const int mine = (block.total - window - lane + 31) / 32;
    uint32_t missing = mine >= 32 ? 0xFFFFFFFFu : mine > 0 ? (1u << mine) - 1 : 0;
    Patience patience;
    while (true) {
      MEGALITH_UNROLL(1)
      for (int group = 0; group < kGroups; ++group) {
        const uint32_t wanted = (missing >> (kLoads * group)) & kGroupMask;
        if (!platform::any_sync(wanted != 0))
          continue;
        u32x4 v[kLoads];
        const int base = window + 32 * kLoads * group + lane;
        MEGALITH_UNROLL(kLoads)
        for (int u = 0; u < kLoads; ++u)
          if ((wanted >> u) & 1)
            v[u] = platform::ld_relaxed_v4<platform::Scope::gpu>(block.from(base + 32 * u));
        MEGALITH_UNROLL(kLoads)
        for (int u = 0; u < kLoads; ++u)
          if ((wanted >> u) & 1 && arrived(v[u])) {
            platform::st_shared(block.to(base + 32 * u), v[u]);
            missing &= ~(1u << (kLoads * group + u));
          }
      }
      if (!platform::any_sync(missing != 0))
        break;
      if (missing != 0) {
        int u = 0;
        while (!((missing >> u) & 1))
          ++u;
        const uint32_t *word = block.from(window + 32 * u + lane);
        if (patience.lost(args))
          platform::fail(args.fault, edge, block.first + (word - block.source), kEmptyWord, n);
        platform::poll_pause(word);
      }
    }
  }
}

} // namespace detail

/// One warp copies `rows` rows of `4 * vectors` words from E's set, starting at word (first_row,
/// first_word), to shared memory at `target`, rows `pitch` bytes apart, as they arrive. Needs
/// X::kWidth and first_word to be multiples of 4, and fewer than 2^16 vectors.
template <class E, class Cta>
MEGALITH_DEVICE void poll_block(const Cta &cta, int first_row, int rows, int first_word,
                                int vectors, unsigned char *target, uint32_t pitch) {
  using X = typename E::Exchange;
  static_assert(X::kWidth % 4 == 0, "rows of words are read as v4");
  const uint32_t first = first_row * X::kWidth + first_word;
  const auto reciprocal = static_cast<uint32_t>(((uint64_t{1} << 32) + vectors - 1) / vectors);
  static_assert(E::kIsProof, "what an earlier launch wrote is fetched, not polled");
  static_assert(!X::kOfRanks, "words of ranks are of system scope");
  platform::mark<platform::verb::Poll, E>();
  detail::poll_vectors(cta.args,
                       {set_of<X>(cta, E::kAge) + first, target, rows * vectors, vectors,
                        reciprocal, X::kWidth, pitch, first},
                       cta.lane, E::kId, cta.n);
  platform::mark_end();
}

namespace detail {
/// Zeroes the padding of activation rows; WordRows have none.
template <class Target, class Cta>
MEGALITH_DEVICE void pad_polled(const Cta &cta, int first, int rows) {
  if constexpr (requires { Target::kPadded; })
    for (int row = first; row < first + rows; ++row)
      clear_padding<Target>(cta, row);
}
} // namespace detail

/// Poller: all rows of E to `Target` (Rows for bf16, WordRows for fp32) as they arrive, for whoever
/// waits for the poller; poll_chunk is quicker where consumers want them at once.
template <class E, class Target, class Cta> MEGALITH_DEVICE void poll_rows(const Cta &cta) {
  using X = typename E::Exchange;
  static_assert(X::kCount <= Target::kCount && 4 * X::kWidth <= Target::kStride);
  poll_block<E>(cta, 0, X::kCount, 0, X::kWidth / 4, cta.smem + Target::kOffset, Target::kStride);
  detail::pad_polled<Target>(cta, 0, X::kCount);
}

/// Poller, after launch_wait: all rows of the launch edge E to `Target`, by bulk copies that the
/// next signal of Full hands on.
template <class E, class Target, class Full, class Cta>
MEGALITH_DEVICE void fetch_rows(const Cta &cta) {
  using X = typename E::Exchange;
  static_assert(!E::kIsProof && X::kWidth % 4 == 0, "bulk copies are of whole 16 B");
  static_assert(X::kCount <= Target::kCount && 4 * X::kWidth <= Target::kStride);
  platform::mark<platform::verb::Poll, E>();
  if (cta.lane == 0)
    for (int row = 0; row < X::kCount; ++row)
      copy_for<Full>(cta, cta.smem + Target::kOffset + row * Target::kStride,
                     set_of<X>(cta, 0) + row * X::kWidth, 4 * X::kWidth);
  platform::mark_end();
  detail::pad_polled<Target>(cta, 0, X::kCount);
}

/// Poller: E's rows of pairs, TopK to each live row, to the same rows of `Target`. Dead rows have
/// no pairs, so nobody writes theirs.
template <class E, class Target, int TopK, class Cta>
MEGALITH_DEVICE void poll_pairs(const Cta &cta) {
  using X = typename E::Exchange;
  static_assert(X::kCount == Cta::Config::kRows * TopK && X::kCount <= Target::kCount &&
                4 * X::kWidth <= Target::kStride);
  for (int row = 0; row < Cta::Config::kRows; ++row)
    if (cta.is_live(row)) {
      poll_block<E>(cta, row * TopK, TopK, 0, X::kWidth / 4,
                    cta.smem + Target::kOffset + row * TopK * Target::kStride, Target::kStride);
      detail::pad_polled<Target>(cta, row * TopK, TopK);
    }
}

/// Epoch words `[Count]` of b128 in buffer slot `Buffer`; one set, never re-armed. Under a
/// LaunchEdge nobody looks at their epochs.
template <int Buffer, int Count> struct Epochs {
  static constexpr int kBuffer = Buffer, kCount = Count;
};

/// Base of an emitted edge over epoch words, as `WordsEdge`.
template <int Id, class X> struct EpochEdge {
  using Exchange = X;
  static constexpr int kId = Id;
  static constexpr bool kIsProof = true;
};

/// Counts launches; 0 never occurs, so zeroed memory is empty.
template <class Cta> MEGALITH_DEVICE uint32_t epoch_of(const Cta &cta) {
  return static_cast<uint32_t>(cta.n) + 1;
}

/// Three fp32 of an epoch word.
struct Triple {
  float a, b, c;
};

/// One lane stores epoch word `index` of this launch.
template <class E, class Cta>
MEGALITH_DEVICE void publish_epoch(const Cta &cta, int index, const Triple &value) {
  auto *words = static_cast<U128 *>(cta.template buffer<E::Exchange::kBuffer>());
  platform::st_relaxed<platform::Scope::gpu, U128>(
      words + index,
      U128{float_to_bits(value.a), float_to_bits(value.b), float_to_bits(value.c), epoch_of(cta)});
}

} // namespace megalith
