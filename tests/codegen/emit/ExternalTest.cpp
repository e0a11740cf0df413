//===- ExternalTest.cpp - Emitted sources under other tools ---------------===//
//
// NVRTC and clang-format must be content with what is emitted. Where one is not installed its case
// only warns.
//
//===----------------------------------------------------------------------===//

#include "codegen/Writer.h"
#include "codegen/headers.h"
#include "runtime/nvrtc.h"
#include "tests/codegen/emit/Format.h"
#include "tests/codegen/emit/Kernel.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace megalith;
using namespace megalith::task;
using megalith::test::formatFindings;
using megalith::test::Kernels;

TEST_CASE("an emitted kernel compiles for both targets without spills") {
  auto nvrtc = runtime::Nvrtc::load();
  if (!nvrtc) {
    WARN("skipped: " << llvm::toString(nvrtc.takeError()));
    return;
  }
  const std::string source = Kernels().emit();
  for (const char *target : {"sm_90a", "sm_100a"}) {
    auto compiled = nvrtc->compile(source, "m0.cu", deviceHeaders(), target);
    INFO(target);
    if (!compiled)
      FAIL(llvm::toString(compiled.takeError()));
    INFO(compiled->log);
    REQUIRE(compiled->resources.count("m0"));
    const runtime::KernelResources &resources = compiled->resources["m0"];
    CHECK(resources.spillBytes == 0);
    CHECK(resources.registers <= 184); // 352 threads share 65,536
    CHECK(resources.registers > 0);
  }
}

TEST_CASE("the PTX shows each wait and signal under its edge's name") {
  auto nvrtc = runtime::Nvrtc::load();
  if (!nvrtc) {
    WARN("skipped: " << llvm::toString(nvrtc.takeError()));
    return;
  }
  runtime::NvrtcOptions options;
  options.ptx = true;
  auto compiled = nvrtc->compile(Kernels().emit(), "m0.cu", deviceHeaders(), "sm_90a", options);
  if (!compiled)
    FAIL(llvm::toString(compiled.takeError()));
  for (const char *mark :
       {"// megalith wait @w_full acquire.cta", "// megalith acquire @w_free acquire.cta",
        "// megalith wait @h_words relaxed.gpu", "// megalith signal @h_words relaxed.gpu",
        "// megalith signal @p_full release.cta"})
    CHECK_THAT(compiled->ptx, Catch::Matchers::Contains(mark));
}

TEST_CASE("an emitted kernel is clang-format clean, long lines too") {
  Kernels kernels;
  auto findings = formatFindings(kernels.emit());
  if (!findings)
    return;
  CHECK(*findings == "");
  CHECK(*formatFindings("int  x;\n") != "");

  // Twenty more edges, a long call, a long loop head.
  OpBuilder builder(&kernels.context);
  EdgeOp last = kernels.nth<EdgeOp>(6);
  builder.setInsertionPointAfter(last);
  for (int id = 7; id < 27; ++id) {
    auto edge = cast<EdgeOp>(builder.clone(*last));
    edge.setId(id);
    edge.setSymName("attention_edge_" + std::to_string(id));
  }
  kernels.first().walk([&](ComputeOp op) {
    if (op.getCallee().starts_with("gemv_block"))
      op.setArgsAttr(builder.getStrArrayAttr(
          {"sum", "slot", "m", "b", "first_argument(column, 1)", "second_argument_of_many",
           "third_argument_of_many", "fourth_argument_of_many", "fifth_argument_of_many"}));
  });
  const std::string source = kernels.emit();
  INFO(source);
  CHECK(*formatFindings(source) == "");
}

TEST_CASE("each kind of long line is broken as clang-format breaks it") {
  Writer out;
  out.open("struct attention : Attention<Config, 132, 32, 4, 128, 128, 4, QkNorm::weighted, "
           "9.99999997e-07f, 8.83883461e-02f, kv, inv_freq, g_q, g_k> {");
  out.line("using QkvIn = qkv_in;");
  out.close("};");
  out.open("void f() {");
  out.line("combine<expert_down, resid_words, expert_down_kept, down_rows, 8>(cta, "
           "routing_table<top_k>(cta)->weight, more);");
  out.open("for (int e = 0; e < platform::ld_shared<int32_t>(&routing_table<top_k>(cta)->active) + "
           "more_of_them; ++e)");
  out.line("f(e);");
  out.dedent();
  for (const char *index : {"entry", "entry_of_all_experts"}) {
    const std::string name = index;
    out.open("for (int " + name + " = 0; " + name + " < platform::ld_shared<int32_t>(&" +
             "routing_table<top_k>(cta)->active); ++" + name + ")");
    out.line("f(" + name + ");");
    out.dedent();
  }
  out.line("const Column column = gathered_column<expert_up, expert_up::In, 8>(cta, expert.pairs, "
           "expert.count_and_more);");
  out.line("poll_expert<act_words, act_rows_of_this_stage>(cta, first_argument_of_many, "
           "expert.pairs, expert.count, slot);");
  out.close("}");
  if (auto findings = formatFindings(out.text())) {
    INFO(out.text());
    CHECK(*findings == "");
  }
}
