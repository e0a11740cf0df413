//===- StreamLintTest.cpp - Broken PTX of streams and dealt experts -------===//
//
// Steps that carry edges of words in registers or tile by tile: rows of a residual stream and its
// branch, alone (rows 1) and dealt out (rows 4), and NVFP4 experts whose tiles are dealt out.
//
//===----------------------------------------------------------------------===//

#include "tests/codegen/lint/Linted.h"

#include "codegen/lint/Summary.h"

#include "llvm/ADT/StringExtras.h"

#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <set>

using namespace mlir;
using namespace megalith;
using namespace megalith::lint;
using Catch::Matchers::Contains;

namespace {

constexpr const char *kMuse = "models/configs/muse-spark-tiny.test.json";

/// A kernel of the plan of some rows, compiled once.
Linted &kernelOf(int64_t rows, const std::string &name) {
  static std::map<std::pair<int64_t, std::string>, std::unique_ptr<Linted>> all;
  auto &linted = all[{rows, name}];
  if (!linted)
    linted = std::make_unique<Linted>(kMuse, rows, /*sms=*/5, name);
  return *linted;
}

/// What carries edges of words: device function, and the verb of its marks.
const std::pair<const char *, const char *> kSteps[] = {
    {"poll_stream", "wait"},     {"poll_branch", "wait"},     {"join_row", "signal"},
    {"deal_row", "signal"},      {"deal_norm_row", "signal"}, {"epilogue_outputs", "signal"},
    {"poll_outputs", "wait"},    {"poll_scales", "wait"},     {"combine_normed", "signal"},
    {"poll_pair_words", "wait"},
};

/// The edges of words that calls of a function name: "@mid_words" of "join_row<mid_rows,
/// mid_words>".
std::set<std::string> edgesOf(task::KernelOp kernel, StringRef function) {
  std::set<std::string> edges;
  kernel.walk([&](Operation *op) {
    auto callee = op->getAttrOfType<StringAttr>("callee");
    if (!callee || callee.getValue().split('<').first != function)
      return;
    // The mark of a poll of two exchanges is that of the first.
    if (auto poll = dyn_cast<task::PollOp>(op)) {
      edges.insert(("@" + poll.getEdge()).str());
      return;
    }
    StringRef text = callee.getValue();
    while (!text.empty()) {
      StringRef name = text.take_while([](char c) { return llvm::isAlnum(c) || c == '_'; });
      if (name.ends_with("_words"))
        edges.insert(("@" + name).str());
      text = text.drop_front(std::max<size_t>(1, name.size()));
    }
  });
  return edges;
}

/// What a step synchronises by: regions of one verb and edge, one behind the other.
struct Step {
  std::vector<Marked> regions;
  bool isClosed = true; ///< else one region, whose end stands further on; to where that is known
};

/// Marks whose ends stand further on, behind other blocks: each to the call that ends a vain wait.
std::vector<Marked> openRegionsOf(ArrayRef<StringRef> lines) {
  std::vector<Marked> regions;
  for (size_t i = 0; i < lines.size(); ++i) {
    StringRef line = lines[i].trim();
    if (!line.consume_front("// megalith wait "))
      continue;
    size_t end = i + 1;
    while (end < lines.size() && !lines[end].trim().starts_with("// megalith ") &&
           !lines[end].trim().starts_with("} // callseq"))
      ++end;
    if (end < lines.size() && lines[end].trim().starts_with("}"))
      regions.push_back({"wait", line.split(' ').first.str(), i, end});
  }
  return regions;
}

/// The steps of a kernel's PTX that are of kSteps; each edge must have one.
std::vector<Step> stepsOf(Linted &linted, std::set<std::string> &functions) {
  std::vector<Step> all;
  for (const Marked &region : regionsOf(linted.lines))
    if (!all.empty() && all.back().regions.back().verb == region.verb &&
        all.back().regions.back().edge == region.edge)
      all.back().regions.push_back(region);
    else
      all.push_back({{region}});
  for (const Marked &region : openRegionsOf(linted.lines))
    all.push_back({{region}, /*isClosed=*/false});
  std::vector<Step> steps;
  std::set<size_t> taken;
  for (auto [function, verb] : kSteps)
    for (const std::string &edge : edgesOf(linted.kernel, function)) {
      functions.insert(function);
      bool isThere = false;
      for (const Step &step : all)
        if (step.regions.front().verb == verb && step.regions.front().edge == edge) {
          isThere = true;
          if (taken.insert(step.regions.front().begin).second)
            steps.push_back(step);
        }
      INFO(function << ": no region of " << verb << " " << edge);
      CHECK(isThere);
    }
  return steps;
}

/// All kernels that are looked at.
template <typename Use> void eachKernel(Use use) {
  for (int64_t rows : {1, 4})
    for (const char *name : {"full_nvfp4", "last"}) {
      Linted &linted = kernelOf(rows, name);
      if (!linted.hasPtx)
        return;
      INFO("@" << name << ", rows " << rows);
      use(linted);
    }
}

} // namespace

TEST_CASE("what NVRTC makes of streams and dealt experts is what was proved") {
  std::set<std::string> functions;
  bool hasPtx = false;
  eachKernel([&](Linted &linted) {
    hasPtx = true;
    CHECK(all(linted.findings(linted.text())) == "");
    CHECK(!stepsOf(linted, functions).empty());
  });
  if (hasPtx)
    CHECK(functions.size() == std::size(kSteps)); // none has another name by now
}

TEST_CASE("words of streams and dealt experts are loaded and stored as strongly as was proved") {
  // Of another scope, of no order, of another width, of another kind.
  const std::pair<const char *, const char *> changes[] = {
      {"ld.relaxed.gpu", "ld.relaxed.cta"},
      {"st.relaxed.gpu", "st.relaxed.cta"},
      {"ld.relaxed.gpu", "ld.relaxed.sys"},
      {"st.relaxed.gpu", "st.relaxed.sys"},
      {"ld.relaxed.gpu", "ld.volatile"},
      {"st.relaxed.gpu", "st.volatile"},
      {".b32", ".b64"},
      {"st.relaxed.gpu.global", "red.relaxed.gpu.global.add"},
  };
  int edits = 0, refused = 0;
  eachKernel([&](Linted &linted) {
    std::set<std::string> functions;
    for (const Step &step : stepsOf(linted, functions))
      for (const auto &[from, to] : changes) {
        // The first of a step stands for the others.
        const Marked &region = step.regions.front();
        for (size_t i = region.begin; i < region.end; ++i) {
          if (!isStrong(opcodeOn(linted.lines[i])) || !opcodeOn(linted.lines[i]).contains(from))
            continue;
          ++edits;
          auto text = linted.text();
          text[i] = replaced(text[i], from, to);
          const std::string found = all(linted.findings(text));
          INFO(from << " to " << to << "\n" << found);
          CHECK_THAT(found, Contains("line " + std::to_string(i + 1) + ": ") &&
                                Contains(region.verb + " " + region.edge + " ") &&
                                Contains("to mend: "));
          refused += !found.empty();
          break;
        }
      }
  });
  if (edits)
    WARN(edits << " instructions of another order, scope or width, " << refused << " refused");
}

TEST_CASE("steps of streams and dealt experts, their marks and instructions cannot be left out") {
  int edits = 0, refused = 0;
  eachKernel([&](Linted &linted) {
    std::set<std::string> functions;
    for (const Step &step : stepsOf(linted, functions)) {
      const Marked &first = step.regions.front();
      auto expectRefused = [&](const std::vector<std::string> &text, const char *what,
                               const std::string &name) {
        ++edits;
        const std::string found = all(linted.findings(text));
        INFO(what << " at line " << first.begin + 1 << ": " << first.verb << " " << first.edge
                  << "\n"
                  << found);
        CHECK_THAT(found, Contains(name) && Contains("to mend: "));
        refused += !found.empty();
      };
      auto text = linted.text();
      text[first.begin].clear();
      expectRefused(text, "no beginning", "");

      text = linted.text();
      text[first.begin] = replaced(text[first.begin], first.edge, "@nobody");
      expectRefused(text, "another edge", "@nobody");

      text = linted.text();
      for (const Marked &region : step.regions)
        text = withoutInstructions(text, region);
      expectRefused(text, "no instruction", first.edge);
      if (!step.isClosed)
        continue;
      for (const Marked &region : step.regions) {
        text[region.begin].clear();
        text[region.end].clear();
      }
      expectRefused(text, "no step", first.edge);

      text = linted.text();
      text[first.end].clear();
      expectRefused(text, "no end", "");
    }
  });
  if (edits)
    WARN(edits << " marks and instructions left out, " << refused << " refused");
}

/// How many places of the exchange whose words `edge` joins each step publishes that publishes any;
/// 0 if they differ.
static size_t placesOf(task::KernelOp kernel, StringRef edge) {
  std::set<size_t> counts;
  kernel.walk([&](task::ComputeOp op) {
    size_t count = 0;
    for (auto write : op.getWrites().getAsRange<task::AccessAttr>())
      if (auto exchange = kernel.lookup<task::ExchangeOp>(write.getBuffer()))
        count += ("@" + exchange.getEdge()).str() == edge;
    if (count)
      counts.insert(count);
  });
  return counts.size() == 1 ? *counts.begin() : 0;
}

TEST_CASE("none of several publications of one exchange by one step can be left out") {
  int edits = 0, refused = 0;
  bool hasPtx = false;
  eachKernel([&](Linted &linted) {
    hasPtx = true;
    std::set<std::string> functions;
    for (const Step &step : stepsOf(linted, functions)) {
      const Marked &first = step.regions.front();
      if (first.verb != "signal" || !step.isClosed || step.regions.size() < 2 ||
          step.regions.size() != placesOf(linted.kernel, first.edge))
        continue;
      for (const Marked &region : step.regions) {
        ++edits;
        auto text = withoutInstructions(linted.text(), region);
        text[region.begin].clear();
        text[region.end].clear();
        const std::string found = all(linted.findings(text));
        INFO("line " << region.begin + 1 << ": " << region.verb << " " << region.edge << "\n"
                     << found);
        CHECK_THAT(found, Contains(region.edge) && Contains("to mend: "));
        refused += !found.empty();
      }
    }
  });
  if (hasPtx)
    CHECK(edits >= 2); // deal_row: the stream, and what it is normed to
  WARN(edits << " of several publications left out, " << refused << " refused");
}
