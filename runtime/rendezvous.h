//===- rendezvous.h - Processes that run a plan together ---------*- C++ -*-===//
//
// One process a rank. They find each other as torchrun's workers do, by the environment: RANK,
// WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT. Rank 0 listens on the port behind MASTER_PORT
// (which torchrun's own store may have), or on MEGALITH_PORT; the others connect to it. All that
// goes over these connections are addresses to be mapped, results, and "I am here": words of
// exchanges never do.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_RUNTIME_RENDEZVOUS_H
#define MEGALITH_RUNTIME_RENDEZVOUS_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace megalith::runtime {

class Rendezvous {
public:
  /// How long a process waits for another one.
  static constexpr int64_t kSeconds = 120;

  /// Whether the environment speaks of several ranks (WORLD_SIZE above 1).
  static bool isAsked();
  /// Meets the others. The error names the variable that is missing or wrong, or the rank that did
  /// not come.
  static llvm::Expected<std::unique_ptr<Rendezvous>> fromEnvironment();
  /// The same with all given.
  static llvm::Expected<std::unique_ptr<Rendezvous>>
  open(int64_t rank, int64_t ranks, int64_t localRank, std::string host, int port);
  ~Rendezvous();
  Rendezvous(const Rendezvous &) = delete;

  int64_t rank() const { return ownRank; }
  int64_t ranks() const { return allRanks; }
  int64_t localRank() const { return ownLocalRank; } ///< of this machine: which GPU

  /// What each rank gives, by rank. All must call it, as often and in the same order: `what`, the
  /// same on all, is compared.
  llvm::Expected<std::vector<std::string>> gather(llvm::StringRef what, llvm::StringRef own);
  /// Returns when all ranks have called it.
  llvm::Error meet(llvm::StringRef what);

private:
  Rendezvous(int64_t rank, int64_t ranks, int64_t localRank)
      : ownRank(rank), allRanks(ranks), ownLocalRank(localRank) {}
  llvm::Error listen(int port);
  llvm::Error connect(const std::string &host, int port);

  int64_t ownRank, allRanks, ownLocalRank;
  /// Of rank 0: to each other rank, by rank; of another: to rank 0, first.
  std::vector<int> sockets;
};

} // namespace megalith::runtime

#endif // MEGALITH_RUNTIME_RENDEZVOUS_H
