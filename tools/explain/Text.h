//===- Text.h - facts for people and for programs ----------------*- C++ -*-===//
#ifndef MEGALITH_TOOLS_EXPLAIN_TEXT_H
#define MEGALITH_TOOLS_EXPLAIN_TEXT_H

#include "tools/explain/Facts.h"

#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"

#include <string>

namespace megalith::explain {

/// What limits each kernel, and every decision with its reason, a kernel after the other. What was
/// told of a kernel before is not told again.
std::string overview(const Facts &facts);

/// All that is known of a kernel, stage, exchange, edge, buffer or ring, in every kernel that has
/// it; "layer/o_proj" of one kernel only. The error lists the names there are.
llvm::Expected<std::string> about(const Facts &facts, llvm::StringRef subject);

/// Version of what toJson writes.
inline constexpr int64_t kFactsJsonVersion = 1;

/// As an object: "format" "megalith-explain", then Facts' members under their names.
void toJson(const Facts &facts, llvm::json::OStream &os);

/// 1234567 as "1,234,567".
std::string withCommas(int64_t number);

} // namespace megalith::explain

#endif // MEGALITH_TOOLS_EXPLAIN_TEXT_H
