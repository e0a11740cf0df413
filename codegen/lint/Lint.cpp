//===- Lint.cpp - From a kernel's PTX to what is wrong with it ------------===//

#include "codegen/lint/Linter.h"

#include "codegen/lint/Inline.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace megalith::task;

namespace megalith::lint {

std::vector<Finding> Linter::run(StringRef ptx) {
  auto read = readPtx(ptx);
  if (!read) {
    note(0, llvm::toString(read.takeError()) + "; give PTX as NVRTC prints it");
    return std::move(findings);
  }
  functions = std::move(*read);
  Summaries all(functions);
  summaries = &all;
  for (const Function &each : functions)
    if (each.isEntry && each.name == name)
      entry = &each;
  if (!entry) {
    note(0, llvm::formatv("expected an entry '{0}' but got none; to mend: give the PTX of this "
                          "kernel's source",
                          name));
    return std::move(findings);
  }
  whole = withMarksInlined(*entry, functions, all);
  entry = &whole;
  findRules();
  flow();
  judge();
  if (kernel) {
    checkInits();
    checkOrder();
  }
  llvm::stable_sort(findings, [](const Finding &a, const Finding &b) { return a.line < b.line; });
  return std::move(findings);
}

void Linter::note(int line, std::string text) {
  if (line > 0)
    text = "line " + std::to_string(line) + ": " + text;
  for (const Finding &finding : findings)
    if (finding.text == text)
      return;
  findings.push_back({line, std::move(text)});
}

std::vector<Finding> lint(KernelOp kernel, StringRef ptx) {
  return Linter(kernel, kernel.getSymName()).run(ptx);
}

std::vector<Finding> lintAlone(StringRef name, StringRef ptx) {
  return Linter(KernelOp(), name).run(ptx);
}

} // namespace megalith::lint
