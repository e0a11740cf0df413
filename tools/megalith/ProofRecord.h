//===- ProofRecord.h - proofs that need not be done again -------------------===//
//
// A proof depends on the kernels and the prover alone. That one was done is kept in the user's
// cache beside cubins: a folder a plan, with a text that a person can read. Whoever can write there
// can only fool themselves: megalith verify never looks at it.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_TOOLS_MEGALITH_PROOFRECORD_H
#define MEGALITH_TOOLS_MEGALITH_PROOFRECORD_H

#include "llvm/ADT/StringRef.h"

#include <string>

namespace megalith::cli {

/// That these kernels were proved, in `cases` random cases beside the largest, by this very prover.
class ProofRecord {
public:
  /// `name` is for people; `kernels` is the text of role regions, without locations. `cache` empty:
  /// runtime::defaultCacheFolder().
  ProofRecord(llvm::StringRef name, llvm::StringRef kernels, int cases, llvm::StringRef cache = "");

  /// Whether the cache says so. An entry that says anything else is as good as none.
  bool isThere() const;
  /// To be called after the proof. Where the cache cannot be written, nothing happens.
  void keep() const;

private:
  std::string name, text, cache;
};

} // namespace megalith::cli

#endif // MEGALITH_TOOLS_MEGALITH_PROOFRECORD_H
