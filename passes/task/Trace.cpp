//===- Trace.cpp - kernels that record what their warps do ------------------===//
#include "passes/Passes.h"

#include "runtime/abi.h"

namespace megalith {
#define GEN_PASS_DEF_TRACETASK
#include "passes/Passes.h.inc"
} // namespace megalith

using namespace mlir;
using namespace megalith;
using namespace megalith::task;

namespace {

struct TraceTask : megalith::impl::TraceTaskBase<TraceTask> {
  void runOnOperation() override {
    KernelOp kernel = getOperation();
    if (!kernel.isAtRoleLevel()) {
      kernel.emitOpError() << "expected role regions, but the stages hold none: run "
                              "task-lower-to-roles before task-trace";
      return signalPassFailure();
    }
    for (Operation &op : kernel.getBody().front())
      if (auto slot = op.getAttrOfType<IntegerAttr>("slot");
          slot && slot.getInt() == kTraceBuffer) {
        kernel.emitWarning() << "kernel " << kernel.getSymName() << " records nothing: slot "
                             << kTraceBuffer << ", where records go, is "
                             << SymbolTable::getSymbolName(&op).getValue() << "'s";
        return;
      }
    kernel.setTrace(true);
  }
};

} // namespace
