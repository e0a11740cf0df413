//===- LintTest.cpp - PTX that is not what was proved is refused ----------===//
//
// Every kernel here is one that NVRTC made; then a script edits its text as a careless change of
// the device headers, or another compiler, would.
//
//===----------------------------------------------------------------------===//

#include "tests/codegen/lint/Linted.h"

#include "codegen/lint/Summary.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

using namespace mlir;
using namespace megalith;
using namespace megalith::task;
using Catch::Matchers::Contains;
using namespace megalith::lint;

namespace {

constexpr const char *kM0 = "tests/ir/task/m0.mlir";
constexpr const char *kQwen = "tests/golden/ir/qwen3_moe/10-task-lower-to-roles.mlir";

/// The layer of the small model, compiled once.
Linted &layer() {
  static Linted linted(kQwen, "layer");
  return linted;
}

} // namespace

TEST_CASE("what NVRTC makes of kernels is what was proved") {
  for (auto [file, name] :
       {std::pair(kM0, "m0"), {kQwen, "embed"}, {kQwen, "layer"}, {kQwen, "last"}}) {
    Linted linted(file, name);
    if (!linted.hasPtx)
      return;
    INFO(name);
    CHECK(all(linted.findings(linted.text())) == "");
  }
}

TEST_CASE("an instruction of another order, scope or width is named with its edge and line") {
  Linted &linted = layer();
  if (!linted.hasPtx)
    return;
  struct Change {
    const char *from, *to;
  };
  const std::vector<Change> changes = {
      {"mbarrier.try_wait.parity.shared", "mbarrier.try_wait.parity.relaxed.cta.shared"},
      {"mbarrier.arrive.shared", "mbarrier.arrive.relaxed.cta.shared"},
      {"mbarrier.arrive.expect_tx.shared", "mbarrier.arrive.expect_tx.relaxed.cta.shared"},
      {"mbarrier.arrive.expect_tx.shared", "mbarrier.arrive.shared"},
      {"mbarrier.arrive.shared", "mbarrier.arrive_drop.shared"},
      {"st.relaxed.gpu.global.b32", "st.relaxed.cta.global.b32"},
      {"st.relaxed.gpu.global.b32", "st.relaxed.sys.global.b32"},
      {"st.relaxed.gpu.global.b32", "st.relaxed.gpu.global.b64"},
      {"st.relaxed.gpu.global.b32", "st.volatile.global.b32"},
      {"st.relaxed.gpu.global.b128", "st.relaxed.gpu.global.b32"},
      {"st.relaxed.gpu.global.b128", "st.relaxed.gpu.global.v4.b32"},
      {"ld.relaxed.gpu.global.v4.b32", "ld.relaxed.cta.global.v4.b32"},
      {"ld.relaxed.gpu.global.v4.b32", "ld.relaxed.gpu.global.b128"},
      {"ld.relaxed.gpu.global.b32", "ld.volatile.global.b32"},
      {"ld.relaxed.gpu.global.b128", "ld.relaxed.gpu.global.v4.b32"},
      {"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes",
       "cp.async.bulk.shared::cluster.global.bulk_group"},
  };
  constexpr int kEach = 6; // sites of each change
  int edits = 0, refused = 0;
  for (const Change &change : changes) {
    int of = 0;
    for (const Marked &region : regionsOf(linted.lines))
      for (size_t i = region.begin; i < region.end; ++i) {
        if (!opcodeOn(linted.lines[i]).starts_with(change.from) || of == kEach)
          continue;
        // A pace orders nothing: relaxed is enough.
        if (region.verb == "pace" && StringRef(change.to).contains("relaxed"))
          continue;
        ++edits, ++of;
        auto text = linted.text();
        text[i] = replaced(text[i], change.from, change.to);
        const std::string found = all(linted.findings(text));
        INFO(change.from << " to " << change.to << "\n" << found);
        CHECK_THAT(found, Contains("line " + std::to_string(i + 1) + ": ") &&
                              Contains(region.verb + " " + region.edge + " ") &&
                              Contains("to mend: "));
        refused += !found.empty();
      }
    INFO(change.from);
    CHECK(of > 0);
  }
  WARN(edits << " instructions of another order, scope or width, " << refused << " refused");
}

TEST_CASE("what is missing between marks, and marks that are missing, are named") {
  Linted &linted = layer();
  if (!linted.hasPtx)
    return;
  int edits = 0, refused = 0;
  auto expectNamed = [&](const std::vector<std::string> &text, const Marked &region,
                         const char *what) {
    ++edits;
    const std::string found = all(linted.findings(text));
    INFO(what << " at line " << region.begin + 1 << ": " << region.verb << " " << region.edge
              << "\n"
              << found);
    CHECK_THAT(found, Contains(region.edge) && Contains("to mend: "));
    refused += !found.empty();
  };
  std::set<std::string> seen;
  for (const Marked &region : regionsOf(linted.lines)) {
    REQUIRE(region.end > region.begin);
    if (!seen.insert(region.verb + region.edge).second)
      continue; // one of each is enough
    auto text = linted.text();
    text[region.begin].clear();
    expectNamed(text, region, "no beginning");

    text = linted.text();
    text[region.end].clear();
    const std::string unended = all(linted.findings(text));
    INFO(unended);
    CHECK_THAT(unended, Contains("let each mark and its end be passed together") ||
                            Contains("which has no end on this way"));

    text = linted.text();
    text[region.begin] = replaced(text[region.begin], region.edge, "@nobody");
    CHECK_THAT(all(linted.findings(text)), Contains("@nobody") && Contains("to mend: "));

    // Without the instructions, and what calls functions that have them.
    text = withoutInstructions(linted.text(), region);
    expectNamed(text, region, "no instruction");

    // Neither marks nor what they bracket.
    text[region.begin].clear();
    text[region.end].clear();
    if (region.verb != "pace") // the first copies have none
      expectNamed(text, region, "no step");

    if (region.verb == "signal" || region.verb == "release" || region.verb == "copy") {
      text = linted.text();
      bool isFirst = true;
      for (size_t i = region.begin; i < region.end; ++i)
        if (opcodeOn(text[i]) == "bar.warp.sync" && std::exchange(isFirst, false))
          text[i].clear();
      if (!isFirst && !StringRef(region.edge).ends_with("_words"))
        expectNamed(text, region, "no meeting of the warp");
    }
  }
  WARN(edits << " marks and instructions left out, " << refused << " refused");
}

TEST_CASE("the rest of a kernel may not synchronise") {
  Linted &linted = layer();
  if (!linted.hasPtx)
    return;
  // Behind the last mark's end nothing is open.
  const size_t place = regionsOf(linted.lines).back().end;
  for (const char *line :
       {"ld.acquire.gpu.global.b32 %r1, [%rd1];", "st.relaxed.gpu.global.b32 [%rd1], %r1;",
        "red.release.gpu.global.add.u32 [%rd1], 1;", "fence.acq_rel.gpu;", "membar.gl;",
        "mbarrier.arrive.shared.b64 state, [%r1];", "fence.proxy.async.shared::cta;",
        "cp.async.ca.shared.global [%r1], [%rd1], 16;", "st.volatile.global.u32 [%rd1], %r1;"}) {
    auto text = linted.text();
    text[place] += std::string("\n\t") + line;
    const std::string found = all(linted.findings(text));
    INFO(line << "\n" << found);
    CHECK_THAT(found, Contains("line " + std::to_string(place + 2) + ": ") &&
                          Contains("stands between no marks"));
  }
}

TEST_CASE("steps in another order than the role regions' are named with both neighbours") {
  Linted &linted = layer();
  if (!linted.hasPtx)
    return;
  const auto regions = regionsOf(linted.lines);
  int swaps = 0;
  for (size_t i = 0; i + 1 < regions.size(); ++i) {
    const Marked &a = regions[i], &b = regions[i + 1];
    if (a.verb != "release" || b.verb != "acquire")
      continue;
    // A consumer that takes the place for its sums before it frees the piece.
    auto text = linted.text();
    std::swap(text[a.begin], text[b.begin]);
    const std::string found = all(linted.findings(text));
    INFO(found);
    CHECK_THAT(found, Contains(a.edge) && Contains(b.edge));
    ++swaps;
  }
  CHECK(swaps > 0);

  // A role that no longer waits for the launch before.
  for (size_t i = 0; i < linted.lines.size(); ++i)
    if (linted.lines[i].trim() == "griddepcontrol.wait;") {
      auto text = linted.text();
      text[i].clear();
      CHECK_THAT(all(linted.findings(text)),
                 Contains("launch_wait") || Contains("before the launch before is over"));
    }
}

TEST_CASE("barriers must be initialised for their edges' arrivals, and deadlines name their edge") {
  Linted &linted = layer();
  if (!linted.hasPtx)
    return;
  int inits = 0, ids = 0;
  for (size_t i = 0; i < linted.lines.size(); ++i) {
    if (opcodeOn(linted.lines[i]).starts_with("mbarrier.init") && inits++ % 7 == 0) {
      auto text = linted.text();
      text[i].clear();
      CHECK_THAT(all(linted.findings(text)), Contains("expected mbarrier.init at shared + "));
      text[i] = replaced(linted.lines[i], "], ", "], 3;//");
      CHECK_THAT(all(linted.findings(text)), Contains("arrivals but got 3"));
    }
    if (opcodeOn(linted.lines[i]).starts_with("fence.mbarrier_init")) {
      auto text = linted.text();
      text[i].clear();
      CHECK_THAT(all(linted.findings(text)), Contains("not made visible to bulk copies"));
    }
  }
  CHECK(inits > 30);
  for (const Marked &region : regionsOf(linted.lines))
    for (size_t i = region.begin; i < region.end; ++i)
      if (StringRef line = linted.lines[i].trim();
          line.starts_with("st.param.b32 \t[param3+0], ") && ++ids % 3 == 0) {
        auto text = linted.text();
        text[i] = "\tst.param.b32 \t[param3+0], 77;";
        const std::string found = all(linted.findings(text));
        INFO(region.verb << " " << region.edge << "\n" << found);
        CHECK_THAT(found, Contains(region.edge) && Contains("would name edge 77"));
      }
  CHECK(ids > 15);
}

TEST_CASE("a copy must complete its bytes on the barrier that expects them") {
  Linted linted(kM0, "m0");
  if (!linted.hasPtx)
    return;
  int copies = 0;
  for (size_t i = 0; i < linted.lines.size(); ++i)
    if (opcodeOn(linted.lines[i]).starts_with("cp.async.bulk.shared")) {
      auto text = linted.text();
      const size_t last = text[i].rfind("], ");
      const size_t from = text[i].rfind('[', last);
      text[i] = text[i].substr(0, from) + "[%r1" + text[i].substr(last);
      CHECK_THAT(all(linted.findings(text)),
                 Contains("completes its bytes on [%r1]") && Contains("copy @w_full"));
      ++copies;
    }
  CHECK(copies > 0);
}

TEST_CASE("texts that are no PTX of the kernel are refused in one line") {
  Linted linted(kM0, "m0");
  CHECK_THAT(all(lint::lint(linted.kernel, "")), Contains("expected an entry 'm0'"));
  CHECK_THAT(all(lint::lint(linted.kernel, "int main() {}")), Contains("expected an entry 'm0'"));
  CHECK_THAT(all(lint::lint(linted.kernel, ".entry m0(\n)\n{\n\tbra L;\n}\n")),
             Contains("line 4: no label L in m0"));
  CHECK_THAT(all(lint::lint(linted.kernel, ".entry m0(\n)\n{\n")), Contains("inside a function"));
  CHECK_THAT(all(lint::lint(linted.kernel, ".entry m0(\n)\n{\n// megalith wait w_full\n}\n")),
             Contains("expected a mark"));
}

TEST_CASE("a kernel without role regions waits for the launch before its first store") {
  const std::string head = ".visible .entry advance(\n)\n{\n", end = "\tret;\n}\n";
  const std::string store = "\tst.global.b64 [%rd1], %rd2;\n", wait = "\tgriddepcontrol.wait;\n";
  CHECK(all(lint::lintAlone("advance", head + wait + store + end)) == "");
  CHECK_THAT(all(lint::lintAlone("advance", head + store + wait + end)),
             Contains("line 4: 'st.global.b64' may come before the launch before is over"));
  CHECK_THAT(
      all(lint::lintAlone("advance", head + "\t@%p1 bra L;\n" + wait + "L:\n" + store + end)),
      Contains("line 7: "));
  CHECK_THAT(all(lint::lintAlone("advance", head + wait + "\tfence.acq_rel.gpu;\n" + end)),
             Contains("stands between no marks"));
}
