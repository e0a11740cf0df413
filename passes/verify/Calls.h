// What the calls of a role say to each other by name: which numbers they get of which slots, and
// that each is made once a turn, in order, for somebody.
#pragma once

#include "ir/task/Task.h"

#include "llvm/ADT/SmallVector.h"

#include <optional>

namespace megalith::verify {

/// The edges whose slot numbers a call is given: those of the waits and acquires whose results it
/// names, itself or through variables. A number is the use that its role waited for last, modulo
/// the edge's slots.
llvm::SmallVector<task::EdgeOp, 2> slotNumbersOf(mlir::Operation *call);

/// A device function in which all consumer warps meet before it writes, that is whose meeting a
/// call may say. One with a `round` does so in every round but the first: the number is that
/// argument.
struct MeetingFunction {
  llvm::StringRef name;
  task::Meeting when;
  std::optional<size_t> round = std::nullopt;
};
llvm::ArrayRef<MeetingFunction> meetingFunctions();

/// Whether two calls are of one function, or of functions that keep one state in registers, as the
/// pieces of an attention's tile and its tail do.
bool areOfOneWork(mlir::Operation *call, mlir::Operation *other);

/// That no role makes a call twice in a turn, nor for nothing, nor out of the order that the device
/// functions ask for; and that each stage writes what it says it writes.
mlir::LogicalResult verifyCalls(task::KernelOp kernel);

} // namespace megalith::verify
