//===- Difference.h - Where two results differ -------------------*- C++ -*-===//
#ifndef MEGALITH_TOOLS_CHECK_DIFFERENCE_H
#define MEGALITH_TOOLS_CHECK_DIFFERENCE_H

#include "models/reference/matrix.h"
#include "models/reference/step.h"

#include <string>

namespace megalith::check {

/// The first live row in which `actual` is not `expected`, and which channels of it: "row 2,
/// channels 64..127 (64 of 256 wrong): first -1.5, expected 0.25". A channel is wrong if it is not
/// finite or differs by more than `tolerance` times ten times the row's RMS, which rounding alone
/// does not reach. Empty if there is none.
std::string locate(const reference::Matrix &actual, const reference::Matrix &expected,
                   const reference::Step &step, double tolerance);

/// The first dead row that holds anything but zeros: "row 3, channel 17: 0.5 in a dead row". Empty
/// if there is none.
std::string locateInDeadRows(const reference::Matrix &actual, const reference::Step &step);

} // namespace megalith::check

#endif // MEGALITH_TOOLS_CHECK_DIFFERENCE_H
