//===- Page.h - a plan as one HTML page --------------------------*- C++ -*-===//
//
// Timelines, critical path, bytes and floors, exchanges, resources and reasons of a plan, in one
// file that needs no other. tools/report/page holds what the browser runs.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_TOOLS_REPORT_PAGE_H
#define MEGALITH_TOOLS_REPORT_PAGE_H

#include "tools/explain/Facts.h"

#include "llvm/ADT/StringRef.h"

#include <map>
#include <string>

namespace megalith::report {

/// Path in the repository -> text of the page's parts.
const std::map<llvm::StringRef, llvm::StringRef> &pageParts();

/// The page. Timelines are what checkTimeline gives; empty where there is none.
std::string page(const explain::Facts &facts, llvm::StringRef predicted, llvm::StringRef measured);

} // namespace megalith::report

#endif // MEGALITH_TOOLS_REPORT_PAGE_H
