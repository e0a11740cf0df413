//===- Passes.h - every pass of Megalith, and how to register them ----------===//
//
// passes/README.md has the map. Passes.td documents each pass.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_PASSES_PASSES_H
#define MEGALITH_PASSES_PASSES_H

#include "ir/task/Task.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

#include <memory>

namespace megalith {

#define GEN_PASS_DECL
#include "passes/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "passes/Passes.h.inc"

} // namespace megalith

#endif // MEGALITH_PASSES_PASSES_H
