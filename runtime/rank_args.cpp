//===- rank_args.cpp - The parameter of a kernel of several ranks ---------===//

#include "runtime/rank_args.h"

#include "runtime/error.h"

#include <cstring>

namespace megalith::runtime {

std::vector<uint64_t> packRanksArgs(const Kernel &kernel, int64_t ranks,
                                    std::span<const LaunchArgs> held, int64_t firstRank,
                                    ReplicaOf replica, Backend::Address places, uint32_t hopNs) {
  const size_t each = size_t(kPeerTableOffset / 8 + ranks * int64_t(kernel.peers.size()));
  std::vector<uint64_t> words(size_t(ranks) * each + kRanksTail / 8, 0);
  for (size_t i = 0; i < held.size(); ++i) {
    uint64_t *own = words.data() + i * each;
    std::memcpy(own, &held[i], sizeof(LaunchArgs));
    own[sizeof(LaunchArgs) / 8] = uint64_t(firstRank) + i;
    uint64_t *table = own + kPeerTableOffset / 8;
    for (int64_t to = 0; to < ranks; ++to)
      for (const std::string &peer : kernel.peers)
        *table++ = replica(peer, to);
  }
  words[words.size() - 2] = places;
  words.back() = hopNs;
  return words;
}

Backend::Address mirrorOf(const Buffer &exchange, Backend::Address own, int64_t rank,
                          int64_t ranks) {
  return own + uint64_t(rank * (exchange.shape.back() / ranks) * elementBytes(exchange.element));
}

llvm::Error checkMirror(const Plan &plan) {
  if (plan.tp == 1)
    return problem("one rank has no peers to mirror; compile with --tp 2, 4 or 8");
  for (const Kernel &kernel : plan.kernels)
    for (const std::string &peer : kernel.peers)
      if (plan.buffer(peer)->crossing)
        return problem("ranks have columns of '{0}' that come from tables which all have whole; "
                       "expected, of a rank that runs alone, a model whose stream every rank keeps",
                       peer);
  return llvm::Error::success();
}

} // namespace megalith::runtime
