// task-simulate, as a pass.
#pragma once

#include "ir/task/Task.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace megalith {

#define GEN_PASS_DECL
#include "passes/simulate/SimulatePasses.h.inc"

#define GEN_PASS_REGISTRATION
#include "passes/simulate/SimulatePasses.h.inc"

} // namespace megalith
