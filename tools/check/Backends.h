//===- Backends.h - Backends by name -----------------------------*- C++ -*-===//
#ifndef MEGALITH_TOOLS_CHECK_BACKENDS_H
#define MEGALITH_TOOLS_CHECK_BACKENDS_H

#include "runtime/backend.h"

#include <memory>

namespace megalith::check {

/// "cuda": this machine's first GPU. "host": the emitted sources on this CPU, compiled by g++
/// against the device headers inside this program; `seed` is the schedule's, and with `log` it
/// keeps what every thread did (HostBackendOptions).
llvm::Expected<std::unique_ptr<runtime::Backend>> openBackend(llvm::StringRef name,
                                                              uint64_t seed = 1, bool log = false);

} // namespace megalith::check

#endif // MEGALITH_TOOLS_CHECK_BACKENDS_H
