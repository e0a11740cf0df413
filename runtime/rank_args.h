//===- rank_args.h - The parameter of a kernel of several ranks --*- C++ -*-===//
#ifndef MEGALITH_RUNTIME_RANK_ARGS_H
#define MEGALITH_RUNTIME_RANK_ARGS_H

#include "runtime/backend.h"

#include "llvm/ADT/STLFunctionalExtras.h"

namespace megalith::runtime {

/// Where exchange `peer` has its replica on `rank`, as the launch's kernel addresses it.
using ReplicaOf = llvm::function_ref<Backend::Address(llvm::StringRef peer, int64_t rank)>;

/// RanksArgs (runtime/abi.h) of a launch that holds ranks firstRank, firstRank + 1, ... of `ranks`,
/// with these LaunchArgs. `places`: RanksArgs::places, 0 where CTA i is SM i of the only one.
std::vector<uint64_t> packRanksArgs(const Kernel &kernel, int64_t ranks,
                                    std::span<const LaunchArgs> held, int64_t firstRank,
                                    ReplicaOf replica, Backend::Address places, uint32_t hopNs);

/// As if another rank: where a rank that runs alone has replica `rank` of an exchange whose own
/// lies at `own`. It is the own one, so many shares further: what the rank stores to all replicas
/// falls where the words of all ranks would, in its own memory.
Backend::Address mirrorOf(const Buffer &exchange, Backend::Address own, int64_t rank,
                          int64_t ranks);

/// Why a plan's rank 0 cannot run alone like that, or success.
llvm::Error checkMirror(const Plan &plan);

} // namespace megalith::runtime

#endif // MEGALITH_RUNTIME_RANK_ARGS_H
