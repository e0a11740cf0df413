// What this prover is, so that a proof by another one is not taken for its own.
#pragma once

#include "llvm/ADT/StringRef.h"

namespace megalith::verify {

/// SHA-256, in hexadecimal, of the sources of the proof and of the dialect it reads, as this
/// program was built from.
llvm::StringRef proverDigest();

} // namespace megalith::verify
