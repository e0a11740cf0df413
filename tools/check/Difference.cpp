//===- Difference.cpp - Where two results differ --------------------------===//

#include "tools/check/Difference.h"

#include "llvm/Support/FormatVariadic.h"

#include <cmath>

namespace megalith::check {

std::string locate(const reference::Matrix &actual, const reference::Matrix &expected,
                   const reference::Step &step, double tolerance) {
  if (actual.rows != expected.rows || actual.columns != expected.columns)
    return llvm::formatv("{0} x {1} values, expected {2} x {3}", actual.rows, actual.columns,
                         expected.rows, expected.columns)
        .str();
  for (int64_t r = 0; r < expected.rows; ++r) {
    if (!step.rows[size_t(r)].live)
      continue;
    double squares = 0;
    for (double value : expected.row(r))
      squares += value * value;
    const double allowed = 10 * tolerance * std::sqrt(squares / double(expected.columns));
    int64_t first = -1, last = -1, wrong = 0;
    for (int64_t c = 0; c < expected.columns; ++c)
      if (!(std::abs(actual.at(r, c) - expected.at(r, c)) <= allowed)) {
        first = first < 0 ? c : first;
        last = c;
        ++wrong;
      }
    if (wrong)
      return llvm::formatv("row {0}, channels {1}..{2} ({3} of {4} wrong): first {5}, expected {6}",
                           r, first, last, wrong, expected.columns, actual.at(r, first),
                           expected.at(r, first))
          .str();
  }
  return "";
}

std::string locateInDeadRows(const reference::Matrix &actual, const reference::Step &step) {
  for (int64_t r = 0; r < actual.rows; ++r)
    for (int64_t c = 0; !step.rows[size_t(r)].live && c < actual.columns; ++c)
      if (actual.at(r, c) != 0)
        return llvm::formatv("row {0}, channel {1}: {2} in a dead row", r, c, actual.at(r, c))
            .str();
  return "";
}

} // namespace megalith::check
