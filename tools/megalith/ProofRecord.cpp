//===- ProofRecord.cpp - proofs that need not be done again -----------------===//

#include "tools/megalith/ProofRecord.h"

#include "passes/verify/Digest.h"
#include "runtime/kernel_cache.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/SHA256.h"

using namespace llvm;

namespace megalith::cli {

static std::string digest(StringRef text) {
  return toHex(SHA256::hash(arrayRefFromStringRef(text)), /*LowerCase=*/true);
}

ProofRecord::ProofRecord(StringRef name, StringRef kernels, int cases, StringRef cache)
    : name(name), cache(cache) {
  // Whole digests, since the entry's name is a shorter one that others could meet by chance.
  text = formatv("megalith proof 1\nprover {0}, LLVM {1}\nkernels {2}\nrandom cases {3}\nproved\n",
                 verify::proverDigest(), LLVM_VERSION_STRING, digest(kernels), cases);
}

bool ProofRecord::isThere() const {
  auto folder = runtime::cacheEntry(cache, "proofs", name, text);
  if (!folder) {
    consumeError(folder.takeError());
    return false;
  }
  return runtime::readWhole(*folder + "/proof.txt") == text;
}

void ProofRecord::keep() const {
  auto folder = runtime::cacheEntry(cache, "proofs", name, text);
  if (folder)
    consumeError(runtime::writeWhole(*folder + "/proof.txt", text));
  else
    consumeError(folder.takeError());
}

} // namespace megalith::cli
