//===- EmitterTest.cpp - What is printed for what, and what is refused ----===//

#include "codegen/Declarations.h"
#include "codegen/Names.h"
#include "codegen/Regions.h"
#include "tests/codegen/emit/Kernel.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace megalith;
using namespace megalith::task;
using Catch::Matchers::Contains;
using megalith::test::Kernels;

/// Role functions of a source: what lies between the stages and the kernel.
static StringRef rolesOf(StringRef source) {
  return source.split("MEGALITH_DEVICE void producer").second.split("MEGALITH_KERNEL").first;
}

TEST_CASE("each edge's name stands at exactly its waits and signals") {
  Kernels kernels;
  std::map<std::string, int> expected;
  auto count = [&](StringRef edge) { ++expected[edge.str()]; };
  kernels.first().walk([&](Operation *op) {
    llvm::TypeSwitch<Operation *>(op)
        .Case<WaitOp, AcquireOp, SignalOp, ReleaseOp, CopyOp, PaceOp, PollOp>(
            [&](auto op) { count(op.getEdge()); })
        .Case([&](ComputeOp op) {
          for (auto write : op.getWrites().getAsRange<AccessAttr>())
            if (auto exchange = kernels.first().lookup<ExchangeOp>(write.getBuffer()))
              count(exchange.getEdge());
        });
  });
  const std::string source = kernels.emit();
  REQUIRE(expected.size() == 7);
  for (EdgeOp edge : kernels.first().edges()) {
    int found = 0;
    for (StringRef line : llvm::split(rolesOf(source), '\n'))
      found += mentions(line, edge.getSymName());
    INFO(edge.getSymName().str() << " in\n" << source);
    CHECK(found == expected[edge.getSymName().str()]);
  }
}

TEST_CASE("removing a step removes its line and nothing else") {
  Kernels whole, less;
  less.nth<WaitOp>(0).erase();
  const std::string before = whole.emit();
  std::string expected = before;
  const std::string line = "    wait<x_full>(cta);\n";
  expected.erase(expected.find(line), line.size());
  CHECK(less.emit() == expected);
}

TEST_CASE("equal IR gives equal text; the digest ignores locations and sees all else") {
  Kernels a, b;
  CHECK(a.emit() == b.emit());
  CHECK(kernelDigest(a.first()) == kernelDigest(b.first()));
  b.nth<EdgeOp>(0)->setLoc(UnknownLoc::get(&b.context));
  CHECK(kernelDigest(a.first()) == kernelDigest(b.first()));
  b.nth<EdgeOp>(3).setOffset(8);
  CHECK(kernelDigest(a.first()) != kernelDigest(b.first()));
  mlir::FailureOr<std::string> source = emitKernel(a.first());
  REQUIRE(succeeded(source));
  CHECK_THAT(*source, Contains("// IR          " + kernelDigest(a.first())));
}

TEST_CASE("a stage on fewer SMs is guarded") {
  Kernels kernels;
  CHECK_THAT(kernels.emit(), !Contains("if (cta.sm"));
  kernels.nth<StageOp>(1).setSms(2);
  CHECK_THAT(kernels.emit(), Contains("  // linear2\n  if (cta.sm < 2) {\n    wait<x_full>"));
}

TEST_CASE("trips are affine bounds, symbols or tiles") {
  Kernels kernels;
  MLIRContext *context = &kernels.context;
  AffineExpr sm = getAffineDimExpr(0, context);
  auto setTrips = [&](ArrayRef<AffineExpr> bounds) {
    kernels.nth<ForOp>(1).setTripsAttr(TripsAttr::get(context, affineMapAttr(bounds, context), {}));
  };
  setTrips({getAffineConstantExpr(4, context), 13 - sm * 4});
  CHECK_THAT(kernels.emit(), Contains("for (int m = 0; m < 4 && m < 13 - cta.sm * 4; ++m)\n"));
  setTrips({(128 - sm * 9).ceilDiv(8)});
  CHECK_THAT(kernels.emit(), Contains("m < floor_div(135 - cta.sm * 9, 8); ++m)\n"));

  OpBuilder builder(context);
  builder.setInsertionPointToStart(&kernels.first().getBody().front());
  auto active =
      SymbolOp::create(builder, kernels.first().getLoc(), "active", 0, 8,
                       "active_experts<top_k>(cta)", /*per_sm=*/false, FlatSymbolRefAttr());
  kernels.nth<ForOp>(1).setTripsAttr(
      TripsAttr::get(context, {}, FlatSymbolRefAttr::get(active.getSymNameAttr())));
  CHECK_THAT(kernels.emit(), Contains("for (int m = 0; m < active_experts<top_k>(cta); ++m)\n"));

  kernels.nth<ForOp>(1).setIterate("AttentionTiles<attention>");
  CHECK_THAT(kernels.emit(),
             Contains("    AttentionTiles<attention> m_list(*cta.args.step, cta.sm);\n"
                      "    MEGALITH_UNROLL(1)\n"
                      "    for (AttentionTiles<attention>::Tile m; m_list.next(m);)"));
}

TEST_CASE("loops over experts and dealt units are walked as one") {
  Kernels kernels;
  MLIRContext *context = &kernels.context;
  AffineExpr sm = getAffineDimExpr(0, context), expert = getAffineDimExpr(1, context);
  OpBuilder builder(context);
  builder.setInsertionPointToStart(&kernels.first().getBody().front());
  auto active =
      SymbolOp::create(builder, kernels.first().getLoc(), "active", 0, 8,
                       "active_experts<top_k>(cta)", /*per_sm=*/false, FlatSymbolRefAttr());
  ForOp units = kernels.nth<ForOp>(1);
  builder.setInsertionPoint(units);
  auto experts = ForOp::create(
      builder, units.getLoc(), builder.getStringAttr("entry"),
      TripsAttr::get(context, {}, FlatSymbolRefAttr::get(active.getSymNameAttr())), StringAttr());
  Block &body = experts.getBody().emplaceBlock();
  units->moveBefore(&body, body.end());
  experts->setAttr("dealt", builder.getI64IntegerAttr(3));
  auto setTrips = [&](AffineExpr trips) {
    units.setTripsAttr(TripsAttr::get(context, affineMapAttr({trips}, context), {}));
  };
  // Unit u of expert e is on SM (3 e + u) mod 4.
  setTrips(((sm * 3 + expert * 3 + 3) % 4 + 3).floorDiv(4));
  CHECK_THAT(
      kernels.emit(),
      Contains("  MEGALITH_UNROLL(1)\n  for (DealtUnit<norm_linear1") &&
          Contains(", 3, Cta> m(cta, active_experts<top_k>(cta)); m.is_there(); m.next()) {\n"));
  setTrips(((sm * 3 + expert * 3 + 3) % 4 + 4).floorDiv(4));
  CHECK_THAT(kernels.emit(), Contains("an SM's share of 3 units dealt out among 4 SMs"));
  experts->setAttr("dealt", builder.getI64IntegerAttr(0));
  CHECK_THAT(kernels.emit(), Contains("at least one dealt unit of each"));
}

TEST_CASE("affine text keeps its meaning") {
  MLIRContext context;
  AffineExpr a = getAffineDimExpr(0, &context), b = getAffineDimExpr(1, &context);
  auto text = [](AffineExpr expr) { return affineText(expr, {"a", "b"}); };
  CHECK(text(a * 32 + b * 8) == "a * 32 + b * 8");
  CHECK(text((a + b) * 8) == "(a + b) * 8");
  CHECK(text(a - b) == "a - b");
  CHECK(text(a - b * 2 - 3) == "a - b * 2 - 3");
  CHECK(text((a + 5).floorDiv(8)) == "(a + 5) / 8");
  CHECK(text((a * 6).ceilDiv(8) + b % 3) == "(a * 6 + 7) / 8 + b % 3");
  // What may be negative rounds down; MLIR takes multiples of the divisor out of the dividend.
  CHECK(text((-a * 65 + 129 + 7).floorDiv(8)) == "floor_div(a * -65, 8) + 17");
  CHECK(text((a - b).ceilDiv(8)) == "floor_div(a - b + 7, 8)");
  CHECK(text((a - b) % 8 * 2) == "floor_mod(a - b, 8) * 2");
}

TEST_CASE("a stage's config becomes its struct") {
  Kernels kernels;
  OpBuilder builder(&kernels.context);
  auto symbol = [&](StringRef name) { return FlatSymbolRefAttr::get(&kernels.context, name); };
  auto set = [&](NamedAttrList config) {
    kernels.nth<StageOp>(0).setConfigAttr(config.getDictionary(&kernels.context));
  };
  NamedAttrList config;
  config.set("base", builder.getStringAttr("Linear<w1, 256, 512, 32>"));
  config.set("kCount", builder.getI64IntegerAttr(3));
  config.set("kFlag", builder.getBoolAttr(true));
  config.set("kScale", builder.getF32FloatAttr(0.1f));
  config.set("kTheta", builder.getF64FloatAttr(1e6));
  config.set("kGain", symbol("gain"));
  config.set("kPlace", symbol("xs"));
  config.set("kNorm", builder.getStringAttr("QkNorm::plain"));
  config.set("Part", symbol("part"));
  config.set("Out", symbol("h"));
  config.set("Norm", builder.getStringAttr("RmsNorm<xs, gain, 1.0e-6f>"));
  config.set("epilogue", builder.getStringAttr("store"));
  set(config);
  CHECK_THAT(kernels.emit(), Contains("// moe.linear \"linear1\" at m0.mlir:28\n"
                                      "struct norm_linear1 : Linear<w1, 256, 512, 32> {\n"
                                      "  static constexpr int kCount = 3;\n"
                                      "  static constexpr bool kFlag = true;\n"
                                      "  static constexpr int kGain = gain;\n"
                                      "  static constexpr auto kNorm = QkNorm::plain;\n"
                                      "  static constexpr int kPlace = xs::kOffset;\n"
                                      "  static constexpr float kScale = 0.1f;\n"
                                      "  static constexpr double kTheta = 1e+06;\n"
                                      "  using Norm = RmsNorm<xs, gain, 1.0e-6f>;\n"
                                      "  using Out = h_words;\n"
                                      "  using Part = part;\n"
                                      "};\n"));
  config.set("Part", symbol("nothing"));
  set(config);
  CHECK_THAT(kernels.emit(), Contains("config's @nothing to be declared"));
  config.set("Part", builder.getI64IntegerAttr(1));
  set(config);
  CHECK_THAT(kernels.emit(), Contains("config's \"Part\" to be a symbol or a type's text"));
}

TEST_CASE("what cannot be printed is refused by name") {
  Kernels kernels;
  SECTION("no places in shared memory") {
    kernels.nth<EdgeOp>(3).removeOffsetAttr();
    CHECK_THAT(kernels.emit(), Contains("error: ") && Contains("run task-plan-memory"));
  }
  SECTION("no bytes of shared memory") {
    kernels.first().removeSmemBytesAttr();
    CHECK_THAT(kernels.emit(), Contains("error: ") && Contains("run task-plan-memory"));
  }
  SECTION("no role regions") {
    for (auto stage : kernels.first().getOps<StageOp>())
      stage.getBody().getBlocks().clear();
    CHECK_THAT(kernels.emit(), Contains("error: ") && Contains("run task-lower-to-roles"));
  }
  SECTION("a name of a device header") {
    kernels.nth<StageOp>(0).setSymName("gemv_block");
    CHECK_THAT(kernels.emit(), Contains("error: ") && Contains("gemv.cuh"));
  }
  SECTION("a word of C++, or of every emitted source") {
    kernels.nth<StageOp>(0).setSymName("for");
    CHECK_THAT(kernels.emit(), Contains("error: ") && Contains("`for` is a word"));
    kernels.nth<StageOp>(0).setSymName("poller");
    CHECK_THAT(kernels.emit(), Contains("`poller` is a word"));
    kernels.nth<StageOp>(0).setSymName("a.b");
    CHECK_THAT(kernels.emit(), Contains("is no C++ identifier"));
  }
  SECTION("a loop index that hides a declaration") {
    kernels.nth<ForOp>(0).setIndex("gain");
    CHECK_THAT(kernels.emit(), Contains("error: ") && Contains("`gain` would hide"));
  }
  SECTION("a call that does not name its edge") {
    kernels.nth<PollOp>(0).setCallee("poll_rows<linear2::In>");
    CHECK_THAT(kernels.emit(), Contains("error: ") && Contains("to name the edge h_words"));
  }
  SECTION("a publishing call that does not name its edge") {
    kernels.first().walk([](ComputeOp op) {
      if (op.getCallee().starts_with("epilogue_words"))
        op.setCallee("epilogue_words");
    });
    CHECK_THAT(kernels.emit(), Contains("error: ") && Contains("to name the edge h_words"));
  }
  SECTION("a row stride that its type does not have") {
    kernels.nth<BufferOp>(3).setRowBytes(1024);
    CHECK_THAT(kernels.emit(), Contains("error: ") && Contains("row_bytes to be 1056"));
  }
}

TEST_CASE("long lines are broken inside their brackets") {
  Writer out;
  out.open("void f() {");
  std::string edges;
  for (int i = 0; i < 20; ++i)
    edges += (i ? ", edge_" : "edge_") + std::to_string(i);
  out.line("setup<" + edges + ">(cta);");
  out.close("}");
  const std::string text = out.text();
  CHECK_THAT(text, Contains("edge_10,\n        edge_11") && Contains("edge_19>(cta);\n}"));
  for (StringRef line : llvm::split(text, '\n'))
    CHECK(line.size() <= Writer::kColumns);
}

TEST_CASE("a stage names the op and the place that it was compiled from") {
  Kernels kernels;
  StageOp stage = kernels.nth<StageOp>(0);
  stage.setSource("moe.linear");
  auto file = FileLineColLoc::get(&kernels.context, "some/folder/qwen3.json", 0, 0);
  stage->setLoc(NameLoc::get(StringAttr::get(&kernels.context, "layers.mlp.gate"), file));
  CHECK(describe(stage) == "moe.linear at layers.mlp.gate in qwen3.json");
  stage->setLoc(UnknownLoc::get(&kernels.context));
  CHECK(describe(stage) == "moe.linear");
  stage.removeSourceAttr();
  CHECK(describe(stage) == "");
}
