// Mutants of plans against the proof.
//
//   mutate proof    each mutant is rejected, or equivalent for a reason that is checked
//   mutate host     300 mutants: those that are accepted run clean under 5 scheduler seeds
//
// Mutants are drawn by a fixed seed; with $MEGALITH_FULL all are taken, with $MEGALITH_MINUTES as
// many of them as are begun in so long. `mutate proof <text>` takes all of the subjects whose names
// contain the text, and lists what is equivalent; `mutate proof <text> <operators>` those of the
// operators whose names contain one of these words, separated by commas.
#include "tests/mutation/Modes.h"

#include <cstdio>

using namespace megalith;

int main(int argc, char **argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0); // what is found is said at once
  const llvm::StringRef mode = argc > 1 ? argv[1] : "", only = argc > 2 ? argv[2] : "";
  if (mode == "proof")
    return mutation::runProof(only, argc > 3 ? argv[3] : "");
  if (mode == "host")
    return mutation::runHost(only);
  std::fprintf(stderr, "usage: mutate proof|host [part of a subject's name] [operators]\n");
  return 2;
}
