// Several ranks: one rank's CTAs, the exchanges that join ranks, and how a rank knows that the
// others' next launch may store to it.
//
// A rank computes its share of every value that all read next, and stores each word of it to all
// ranks' replicas; everybody polls the replica at hand. Words of ranks are of system scope, on both
// sides. The same kernel serves ranks on GPUs of their own, whose replicas are mapped into each
// other's memory, and virtual ranks, whose CTAs share one launch.
#pragma once

#include "codegen/device/exchange.cuh"

namespace megalith {

/// Words as `Words`, of which every rank has a replica: each of the Ranks stores columns [rank *
/// kOwn, (rank + 1) * kOwn) of all of them. `Peer`: place in RankArgs::peer.
template <int Buffer, int Count, int Width, int Sets, int Ranks, int Peer>
struct PeerWords : Words<Buffer, Count, Width, Sets> {
  static_assert(Width % Ranks == 0, "ranks have equal shares of whole words");
  static constexpr bool kOfRanks = true;
  static constexpr int kOwn = Width / Ranks, kRanks = Ranks, kPeer = Peer;
};

/// A thread's view of one rank's CTA; `Config` supplies, beside what Cta needs, kRanks and kPeers,
/// exchanges of ranks. `sm` and all that is counted with it are of this rank.
template <class Config_> struct RankCta : Cta<Config_> {
  using Args = RanksArgs<Config_::kRanks, Config_::kPeers>;

  const RankArgs<Config_::kRanks, Config_::kPeers> &mine;
  int rank;
  uint32_t hop_ns; ///< a word of another rank counts as arrived so much later than it is seen

  MEGALITH_DEVICE explicit RankCta(const Args &all) : RankCta(all, place(all)) {}

  /// Replica of exchange number `Peer` on rank `to`.
  template <int Peer> MEGALITH_DEVICE void *replica(int to) const { return mine.peer[to][Peer]; }

private:
  struct Place {
    int held, sm;
  };
  static MEGALITH_DEVICE Place place(const Args &all) {
    const int cta = platform::sm();
    if (!all.places)
      return {0, cta};
    const uint32_t place = platform::ld_global<uint32_t>(all.places + cta);
    return {static_cast<int>(place >> 16), static_cast<int>(place & 0xFFFF)};
  }
  MEGALITH_DEVICE RankCta(const Args &all, Place place)
      : Cta<Config_>(all.held[place.held].launch), mine(all.held[place.held]),
        rank(static_cast<int>(mine.rank)), hop_ns(all.hop_ns) {
    this->sm = place.sm;
  }
};

/// Poller, right after re-arming: tells the SMs of this number on all ranks that whatever launch
/// n + 1 stores to this SM's share of the sets comes after their being emptied. E: edge of the
/// numbers `[ranks * kSms]`.
template <class E, class Cta> MEGALITH_DEVICE void tell_armed(const Cta &cta) {
  using X = typename E::Exchange;
  platform::mark<platform::verb::TellArmed, E>();
  platform::warp_sync(); // the other lanes' stores are this one's to release
  if (cta.lane < X::kRanks)
    platform::st_release<platform::Scope::sys, uint32_t>(
        static_cast<uint32_t *>(cta.template replica<X::kPeer>(cta.lane)) + cta.rank * X::kOwn +
            cta.sm,
        epoch_of(cta));
  platform::mark_end();
}

/// Poller, before its CTA ends: waits until SM `cta.sm` of rank `peer` has told so in this launch,
/// or in a later one. Every rank's SMs do, so launch n + 1 of a rank, whose stores come after
/// launch n is over, comes after the re-arming of all.
template <class E, class Cta> MEGALITH_DEVICE void await_armed(const Cta &cta, int peer) {
  using X = typename E::Exchange;
  const uint32_t *word =
      static_cast<const uint32_t *>(cta.template buffer<X::kBuffer>()) + peer * X::kOwn + cta.sm;
  platform::mark<platform::verb::AwaitArmed, E>();
  Patience patience;
  while (true) {
    const uint32_t seen = platform::ld_acquire<platform::Scope::sys, uint32_t>(word);
    if (platform::all_sync(static_cast<int32_t>(seen - epoch_of(cta)) >= 0))
      break;
    if (patience.lost(cta))
      platform::fail(cta.args.fault, E::kId, epoch_of(cta), seen, cta.n);
    platform::poll_pause(word);
  }
  platform::mark_end();
}

} // namespace megalith
