//===- Names.h - Names in emitted source -------------------------*- C++ -*-===//
//
// An emitted kernel shares the namespace megalith with the device headers. Their texts say which
// names they define; that decides which headers a kernel includes, and which names it may not take.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_CODEGEN_NAMES_H
#define MEGALITH_CODEGEN_NAMES_H

#include "llvm/ADT/StringRef.h"

#include <map>
#include <set>
#include <string>

namespace megalith {

/// What the device headers define at namespace level.
class DeviceNames {
public:
  /// Reads the headers that are embedded in the program.
  DeviceNames();

  /// The include name of the header that defines `name`; empty if none does.
  llvm::StringRef headerOf(llvm::StringRef name) const;

  /// The headers to include for `source`: those that define a name it uses, in order.
  std::set<llvm::StringRef> headersFor(llvm::StringRef source) const;

private:
  std::map<std::string, llvm::StringRef, std::less<>> headers;
};

/// Why a kernel's symbol `name` cannot be a name of its source; empty if it can.
std::string whyNotAName(llvm::StringRef name, const DeviceNames &device);

/// Whether `name` occurs in `text` as a whole identifier.
bool mentions(llvm::StringRef text, llvm::StringRef name);

} // namespace megalith

#endif // MEGALITH_CODEGEN_NAMES_H
