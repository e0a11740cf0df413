//===- error.h - Errors for users --------------------------------*- C++ -*-===//
//
// The runtime's errors are one line of text: what, expected, got, where, how to mend.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_RUNTIME_ERROR_H
#define MEGALITH_RUNTIME_ERROR_H

#include "llvm/Support/Error.h"
#include "llvm/Support/FormatVariadic.h"

namespace megalith::runtime {

/// `text` as an error; arguments as in llvm::formatv.
template <typename... Args> llvm::Error problem(const char *text, Args &&...args) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(),
                                 llvm::formatv(text, std::forward<Args>(args)...).str());
}

} // namespace megalith::runtime

#endif // MEGALITH_RUNTIME_ERROR_H
