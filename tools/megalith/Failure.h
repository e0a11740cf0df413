//===- Failure.h - how a command ends badly ---------------------------------===//
#ifndef MEGALITH_TOOLS_MEGALITH_FAILURE_H
#define MEGALITH_TOOLS_MEGALITH_FAILURE_H

#include "llvm/Support/Error.h"
#include "llvm/Support/FormatVariadic.h"

#include <string>
#include <system_error>

namespace megalith::cli {

/// The program's exit codes; 0 is success.
enum class Exit {
  Input = 1,       ///< a file's contents, or a path
  CommandLine = 2, ///< options
  Proof = 3,       ///< a kernel that is not proved
  Run = 4,         ///< while running: no GPU, a deadline, results out of tolerance
};

/// An error with its exit code. The message is one line: what, expected, got, where, how to mend.
class Failure : public llvm::ErrorInfo<Failure> {
public:
  static inline char ID;
  Failure(Exit code, std::string message) : code(code), text(std::move(message)) {}

  void log(llvm::raw_ostream &os) const override { os << text; }
  std::error_code convertToErrorCode() const override { return llvm::inconvertibleErrorCode(); }

  const Exit code;

private:
  std::string text;
};

/// Arguments as in llvm::formatv.
template <typename... Args> llvm::Error failure(Exit code, const char *text, Args &&...args) {
  return llvm::make_error<Failure>(code, llvm::formatv(text, std::forward<Args>(args)...).str());
}

/// Gives an error of the libraries below, which know no exit codes, one.
inline llvm::Error with(Exit code, llvm::Error error) {
  return error ? llvm::make_error<Failure>(code, llvm::toString(std::move(error)))
               : llvm::Error::success();
}

} // namespace megalith::cli

#endif // MEGALITH_TOOLS_MEGALITH_FAILURE_H
