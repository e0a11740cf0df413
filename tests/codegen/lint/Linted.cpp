#include "tests/codegen/lint/Linted.h"

#include "codegen/Emitter.h"
#include "codegen/headers.h"
#include "codegen/lint/Summary.h"
#include "ir/moe/Moe.h"
#include "models/Import.h"
#include "passes/graph/GraphPasses.h"
#include "runtime/nvrtc.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MemoryBuffer.h"

#include <catch2/catch.hpp>

using namespace mlir;
using namespace megalith;
using namespace megalith::lint;

Linted::Linted(const char *file, StringRef name) {
  context.loadDialect<task::TaskDialect>();
  module = parseSourceFile<ModuleOp>(file, &context);
  REQUIRE(module);
  compile(name);
}

Linted::Linted(const char *config, int64_t rows, int64_t sms, StringRef name) {
  context.loadDialect<task::TaskDialect, moe::MoeDialect, func::FuncDialect>();
  auto text = llvm::MemoryBuffer::getFile(config);
  REQUIRE(text);
  auto graph = models::importConfig(context, (*text)->getBuffer(), config,
                                    {.rows = rows, .quantization = {.experts = true}});
  if (!graph)
    FAIL(llvm::toString(graph.takeError()));
  module = std::move(*graph);
  PassManager manager(&context);
  manager.addPass(createBoundScores());
  for (auto &pass : pipelinePasses({.target = "sm_90a", .sms = sms}))
    addTo(manager, std::move(pass));
  REQUIRE(succeeded(manager.run(*module)));
  compile(name);
}

void Linted::compile(StringRef name) {
  kernel = module->lookupSymbol<task::KernelOp>(name);
  REQUIRE(kernel);
  auto nvrtc = runtime::Nvrtc::load();
  if (!nvrtc) {
    WARN("skipped: " << llvm::toString(nvrtc.takeError()));
    return;
  }
  auto source = emitKernel(kernel, {});
  REQUIRE(succeeded(source));
  auto text = nvrtc->ptx(*source, "kernel.cu", deviceHeaders(), kernel.getTarget());
  if (!text)
    FAIL(llvm::toString(text.takeError()));
  ptx = std::move(*text);
  StringRef(ptx).split(lines, '\n');
  hasPtx = true;
}

std::vector<Finding> Linted::findings(const std::vector<std::string> &edited) const {
  return lint::lint(kernel, llvm::join(edited, "\n"));
}

std::vector<std::string> Linted::text() const {
  std::vector<std::string> copy;
  for (StringRef line : lines)
    copy.push_back(line.str());
  return copy;
}

std::string lint::all(const std::vector<Finding> &findings) {
  std::string text;
  for (const Finding &finding : findings)
    text += finding.text + "\n";
  return text;
}

std::vector<Marked> lint::regionsOf(ArrayRef<StringRef> lines) {
  std::vector<Marked> regions;
  for (size_t i = 0; i < lines.size(); ++i) {
    StringRef line = lines[i].trim();
    if (!line.consume_front("// megalith "))
      continue;
    if (line == "end") {
      if (!regions.empty() && regions.back().end == 0)
        regions.back().end = i;
      continue;
    }
    if (!regions.empty() && regions.back().end == 0)
      regions.pop_back(); // its end stands further on, among other blocks
    auto [verb, rest] = line.split(' ');
    regions.push_back({verb.str(), rest.split(' ').first.str(), i, 0});
  }
  return regions;
}

StringRef lint::opcodeOn(StringRef line) {
  line = line.trim();
  if (line.starts_with("//") || line.starts_with("{") || line.starts_with("."))
    return "";
  if (line.starts_with("@"))
    line = line.split(' ').second.trim();
  return line.take_until([](char c) { return llvm::isSpace(c) || c == ';'; });
}

std::string lint::replaced(StringRef line, StringRef from, StringRef to) {
  const size_t at = line.find(from);
  REQUIRE(at != StringRef::npos);
  return (line.substr(0, at) + to + line.substr(at + from.size())).str();
}

std::vector<std::string> lint::withoutInstructions(std::vector<std::string> text,
                                                   const Marked &region) {
  bool isCall = false;
  for (size_t i = region.begin + 1; i < region.end; ++i) {
    if (opcodeOn(text[i]).starts_with("call"))
      isCall = true;
    if (isCall || isStrong(opcodeOn(text[i]))) {
      isCall &= !StringRef(text[i]).contains(";");
      text[i].clear();
    }
  }
  return text;
}
