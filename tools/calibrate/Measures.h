//===- Measures.h - What is measured -----------------------------*- C++ -*-===//
#ifndef MEGALITH_TOOLS_CALIBRATE_MEASURES_H
#define MEGALITH_TOOLS_CALIBRATE_MEASURES_H

#include "tools/calibrate/Session.h"

#include <functional>
#include <string>
#include <vector>

namespace megalith::calibrate {

/// One or a few figures that the same launches give.
struct Measure {
  struct Output {
    std::string name, unit;
  };
  std::vector<Output> outputs;
  std::string how;
  /// One run: a value for each output.
  std::function<llvm::Expected<std::vector<double>>(Session &)> once;
  int runs = 7; ///< after one that does not count
};

using Measures = std::vector<Measure>;

void addMemory(Measures &measures);
void addHops(Measures &measures);
void addStages(Measures &measures);
void addUnits(Measures &measures);
void addParts(Measures &measures);
void addLaunches(Measures &measures);

/// A cost between two GPUs of this machine.
struct PeerCost {
  std::string name, how;
  std::vector<double> values; ///< ns, run after run
};
/// Names of what measurePeers measures.
std::vector<std::string> peerCosts();
/// Measures GPUs `first` and `second` (numbers as the driver counts), as `first` sees it. Fails
/// with the words of the driver, for instance where neither reaches the other's memory.
llvm::Expected<std::vector<PeerCost>> measurePeers(int first, int second, llvm::StringRef target);

/// Mean over the SMs of a field of their samples.
template <class Field> double meanOf(const std::vector<Sample> &samples, Field field) {
  double sum = 0;
  for (const Sample &sample : samples)
    sum += double(field(sample));
  return sum / double(samples.size());
}

/// ns from the first SM's begin to the last one's end.
double span(const std::vector<Sample> &samples);

} // namespace megalith::calibrate

#endif // MEGALITH_TOOLS_CALIBRATE_MEASURES_H
