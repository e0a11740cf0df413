// What to say of roles that can move no more.
#pragma once

#include "passes/verify/Faults.h"
#include "passes/verify/Local.h"

namespace megalith::verify {

/// Reports the cause, as far as it can be told: `blocked` are the SMs that do not reach their end.
void reportDeadlock(const Program &program, llvm::ArrayRef<Standing> blocked, Faults &faults);

} // namespace megalith::verify
