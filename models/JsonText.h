//===- JsonText.h - JSON text to an object, strictly ------------------------===//
#ifndef MEGALITH_MODELS_JSONTEXT_H
#define MEGALITH_MODELS_JSONTEXT_H

#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"

namespace megalith::models {

/// Parses `text` into an object. Beyond syntax it refuses what a JSON library lets pass: keys that
/// occur twice in an object, and nesting deep enough to exhaust a recursive parser's stack.
llvm::Expected<llvm::json::Object> parseJsonObject(llvm::StringRef text, llvm::StringRef source);

/// One step down a JSON path: ".key" or, where the key is no plain word, "[\"key\"]", shortened.
std::string pathStep(llvm::StringRef key);

/// `value` as text for a message, shortened to fit a line.
std::string describe(const llvm::json::Value &value);

} // namespace megalith::models

#endif // MEGALITH_MODELS_JSONTEXT_H
