//===- Advance.h - The kernel between two steps ------------------*- C++ -*-===//
//
// A plan whose head stores candidates gets a kernel `advance` behind its launches: it moves the
// step descriptor on (codegen/device/advance.cuh). It has no role regions; it runs alone.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_CODEGEN_ADVANCE_H
#define MEGALITH_CODEGEN_ADVANCE_H

#include "runtime/plan.h"

#include <string>

namespace megalith {

/// Adds kernel `advance` and its buffer `tokens` to the plan and returns the kernel's source; does
/// nothing and returns "" for several ranks, or if no kernel writes a buffer `candidates` ([rows][2
/// * SMs of the head]).
std::string addAdvance(runtime::Plan &plan);

} // namespace megalith

#endif // MEGALITH_CODEGEN_ADVANCE_H
