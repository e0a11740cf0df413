//===- Registration.h - what megalith-opt knows -----------------------------===//
#ifndef MEGALITH_TOOLS_MEGALITH_OPT_REGISTRATION_H
#define MEGALITH_TOOLS_MEGALITH_OPT_REGISTRATION_H

#include "mlir/IR/DialectRegistry.h"

namespace megalith {

/// Megalith's dialects and those builtin ones that its IR uses.
void registerDialects(mlir::DialectRegistry &registry);

/// The passes that the command line and --pass-pipeline can name.
void registerPasses();

} // namespace megalith

#endif // MEGALITH_TOOLS_MEGALITH_OPT_REGISTRATION_H
