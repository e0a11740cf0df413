//===- Code.cpp - whose code a kernel's bytes are ---------------------------===//

#include "tools/explain/Code.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"

using namespace llvm;

namespace megalith::explain {

std::vector<CodeFacts> codeFacts(StringRef source, ArrayRef<runtime::CodeLine> lines) {
  std::vector<CodeFacts> facts = {{"", "", 0}, {"called", "", 0}};
  std::vector<size_t> ofLine = {1}; // line 0: functions that are called
  size_t current = 0;
  SmallVector<StringRef> texts;
  source.split(texts, '\n');
  for (StringRef text : texts) {
    StringRef rest = text;
    if (rest.consume_front("MEGALITH_DEVICE void ") && rest.contains("(Cta &cta) {")) {
      facts.push_back({rest.split('(').first.str(), "", 0});
      current = facts.size() - 1;
    } else if (text.starts_with("}")) {
      current = 0;
    } else if (rest = text; current > 1 && rest.consume_front("  // ")) {
      facts.push_back({facts[current].role, rest.str(), 0});
      current = facts.size() - 1;
    }
    ofLine.push_back(current);
  }
  for (const runtime::CodeLine &line : lines)
    facts[size_t(line.line) < ofLine.size() ? ofLine[size_t(line.line)] : 0].bytes += line.bytes;
  erase_if(facts, [](const CodeFacts &part) { return part.bytes == 0; });
  return facts;
}

} // namespace megalith::explain
