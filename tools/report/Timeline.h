//===- Timeline.h - timelines from files, checked ----------------*- C++ -*-===//
#ifndef MEGALITH_TOOLS_REPORT_TIMELINE_H
#define MEGALITH_TOOLS_REPORT_TIMELINE_H

#include "runtime/plan.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <string>

namespace megalith::report {

/// What a timeline's times are of. Files of version 1 do not say: they are measured.
enum class Origin { Measured, Predicted, Any };

/// The JSON of docs/trace-json.md in `text`, written anew without digits that mean nothing. It must
/// be of that origin and of the plan's model, target, SMs and rows, and whole: every name, place
/// and time that the page reads is there. The error names `file` and the place.
llvm::Expected<std::string> checkTimeline(llvm::StringRef text, llvm::StringRef file,
                                          const runtime::Plan &plan, Origin origin);

} // namespace megalith::report

#endif // MEGALITH_TOOLS_REPORT_TIMELINE_H
