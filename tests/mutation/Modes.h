// What the program does; each returns its exit code.
#pragma once

#include "llvm/ADT/StringRef.h"

namespace megalith::mutation {

/// Each mutant is rejected, or equivalent for a reason that is checked. With `only`, all mutants of
/// the subjects whose names contain it, and aloud what is equivalent; with `operators` those whose
/// operators' names contain one of these words, separated by commas.
int runProof(llvm::StringRef only, llvm::StringRef operators);

/// Mutants that are accepted run clean on the host platform under scheduler seeds.
int runHost(llvm::StringRef only);

} // namespace megalith::mutation
