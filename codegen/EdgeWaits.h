//===- EdgeWaits.h - What a role waits for before it signals -----*- C++ -*-===//
#ifndef MEGALITH_CODEGEN_EDGEWAITS_H
#define MEGALITH_CODEGEN_EDGEWAITS_H

#include "ir/task/Task.h"

#include <cstdint>
#include <vector>

namespace megalith {

/// Ids of the edges that the role which signals `edge` waits for before the last of its signals in
/// a launch, ascending: while it waits for one of them, a signal may still be owed. Loops count as
/// going round again; in a looping kernel everything comes before everything.
std::vector<int64_t> edgesAwaitedBefore(task::KernelOp kernel, task::EdgeOp edge);

} // namespace megalith

#endif // MEGALITH_CODEGEN_EDGEWAITS_H
