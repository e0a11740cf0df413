//===- Backends.h - Backends by name -----------------------------*- C++ -*-===//
#ifndef MEGALITH_TOOLS_CHECK_BACKENDS_H
#define MEGALITH_TOOLS_CHECK_BACKENDS_H

#include "runtime/backend.h"

#include <memory>

namespace megalith::check {

/// "cuda": GPU `ordinal` of this machine. "host": the emitted sources on this CPU, compiled by g++
/// against the device headers inside this program; `seed` is the schedule's, and with `log` it
/// keeps what every thread did (HostBackendOptions).
llvm::Expected<std::unique_ptr<runtime::Backend>>
openBackend(llvm::StringRef name, uint64_t seed = 1, bool log = false, int ordinal = 0);

} // namespace megalith::check

#endif // MEGALITH_TOOLS_CHECK_BACKENDS_H
