// The experts' two projections: loops over a step's experts, rows gathered by routing.
#include "passes/task/Declare.h"
#include "passes/task/Handoffs.h"
#include "passes/task/Lowering.h"

using namespace mlir;

namespace megalith::task {

// The loop over active experts, in every role the same: `expert` is its id and pairs. Where tiles
// are dealt out, over those that this SM has units of, with a turn for each: an SM rarely has two
// of one expert. The source goes from unit to unit then, past the experts without any.
void KernelLowering::forExperts(StageOp stage, Steps &steps, function_ref<void()> body) {
  auto visit = [&](StringRef entry) {
    steps.compute("active_expert<" + topK().getSymName() + ">", {entry}, {whole(names::kRouting)},
                  {}, "const ActiveExpert expert");
    body();
  };
  if (!dealsTiles(stage)) {
    steps.loop("entry", "active", [&] { visit("entry"); });
    return;
  }
  const Slice slice = sliceOf(stage);
  steps.dealt("entry", "active", "unit", dealtUnits(stage), slice.strips / slice.unit, [&] {
    steps.local("first", "const int", "unit.first()");
    visit("unit.entry()");
  });
}

LogicalResult KernelLowering::lowerExpertUp(StageOp stage) {
  if (failed(declareBounds(stage)))
    return failure();
  set(stage, "base", linearBase(stage));
  set(stage, "In", "Rows<" + inputType(stage) + ">");
  AccessAttr rows = rowsOf(stage, whole(names::kInput));
  std::string name = stage.getSymName().str();
  std::string perRow = std::to_string(*configInt(stage, "top_k"));

  Steps producer(stage, Role::Producer);
  forExperts(stage, producer, [&] { stream(stage, producer, /*isExpert=*/true); });

  if (!loadsBehind(stage, topK()))
    loadRows(stage);

  Steps consumer(stage, Role::Consumer);
  takeRows(stage, consumer);
  if (quantizesInput(stage)) {
    if (lastSharer(loaderOf(stage)) != stage)
      return stage.emitOpError()
             << "expected nobody to read the rows behind it, since it quantises "
                "them in place";
    consumer.compute("quantize_rows<" + name + ", " + name + "::In>", {}, {rows}, {rows});
  }
  if (pollerRoutes(kernel))
    consumer.wait("routed");
  forExperts(stage, consumer, [&] {
    consumer.compute(Operands(kernel).column("gathered", name + ", " + name + "::In, " + perRow),
                     {"expert.pairs", "expert.count"}, {whole(names::kRouting)}, {},
                     (Operands(kernel).columnLocal() + " column").str());
    multiply(stage, consumer, rows);
  });
  releaseRows(stage, consumer);
  auto awaitWeights = [&](Role role, Steps &steps) { // before a stage that has fewer SMs
    if (pollerRoutes(kernel) && weightReader(kernel) == role)
      steps.wait("weighed");
  };
  awaitWeights(Role::Consumer, consumer);

  Steps epilogue(stage, Role::Epilogue);
  requireLaunchWait(stage, Role::Epilogue, epilogue);
  auto write = cast<AccessAttr>(stage.getWrites()[0]);
  forExperts(stage, epilogue, [&] {
    finishTiles(stage, epilogue, [&] {
      epilogue.compute("epilogue_glu<" + name + ", " + write.getBuffer().getValue() + "_words>",
                       {tileText(stage), "sum", "expert.pairs", "expert.count"},
                       {whole(names::kRouting)},
                       {tileWrite(stage, epilogue.depth(), 1, *configInt(stage, "n") / 2)});
    });
  });
  awaitWeights(Role::Epilogue, epilogue);
  return success();
}

LogicalResult KernelLowering::lowerExpertDown(StageOp stage) {
  if (failed(declareBounds(stage)))
    return failure();
  set(stage, "base", linearBase(stage));
  std::string name = stage.getSymName().str();
  AccessAttr input = inputOf(stage), acts = whole(names::kAct);
  if (!input || !exchange(input.getBuffer().getValue()))
    return stage.emitOpError() << "expected to read the experts' activations from an exchange";

  Steps producer(stage, Role::Producer);
  const bool isInParts = partsOf(stage) > 1;
  forExperts(stage, producer, [&] {
    isInParts ? streamParts(stage, producer, /*isExpert=*/true)
              : stream(stage, producer, /*isExpert=*/true);
  });

  Steps poller(stage, Role::Poller), consumer(stage, Role::Consumer);
  if (kernel.lookup<EdgeOp>(ref(names::kRowsOver))) { // the activations come to the rows' bytes
    consumer.signal(names::kRowsOver);
    poller.wait(names::kRowsOver);
  }
  std::string words = (input.getBuffer().getValue() + "_words").str();
  bool isProof = exchange(input.getBuffer().getValue()).isSelfValidating();
  if (quantizesInput(stage) && !isProof)
    return stage.emitOpError()
           << "has no form yet that quantises its activations in a launch of its "
              "own: bulk copies bring them";
  if (isInParts) {
    lowerExpertParts(stage, poller, consumer);
  } else {
    std::string fetch = ((isProof ? "poll_expert<" : "fetch_expert<") + words + ", " + names::kAct +
                         (isProof ? ">" : ", act_full>"))
                            .str();
    forExperts(stage, poller, [&] {
      poller.acquire("act_free", "const int slot");
      poller.poll(fetch, {"slot", "expert.pairs", "expert.count"}, words,
                  rectangle(input.getBuffer().getValue(), {d(1), c(0), c(0)}, kernel.getRows(),
                            {c(*configInt(stage, "k"))}, "expert_id"),
                  acts, isProof ? "" : "act_full");
      poller.signal("act_full");
    });

    forExperts(stage, consumer, [&] {
      holdPieces(stage, consumer);
      consumer.wait("act_full", "const int acts");
      if (quantizesInput(stage))
        consumer.compute("quantize_slot<" + name + ", " + names::kAct.str() + ">",
                         {"acts", "expert.id", "expert.count"}, {acts}, {acts});
      consumer.local("column", Operands(kernel).columnLocal(),
                     Operands(kernel).column("slot", name + ", " + names::kAct) +
                         "(cta, acts, expert.count)");
      multiply(stage, consumer, acts, heldPieces(stage));
      consumer.release("act_free");
    });
  }

  Steps epilogue(stage, Role::Epilogue);
  if (publishesOutputs(stage)) {
    publishOutputs(stage, epilogue);
    return success();
  }
  fetchResidual(stage, epilogue);
  requireLaunchWait(stage, Role::Epilogue, epilogue);
  AccessAttr down = whole(names::kDown);
  // A row without experts has no sums, but combine may not find poison.
  epilogue.compute("clear_words<" + names::kDown + ">", {}, {}, {down});
  forExperts(stage, epilogue, [&] {
    finishTiles(stage, epilogue, [&] {
      epilogue.compute("epilogue_down<" + name + ", " + names::kDown + ">",
                       {"mtile", "sum", "expert.pairs", "expert.count"},
                       {whole(names::kRouting), down}, {down});
    });
  });
  auto write = cast<AccessAttr>(stage.getWrites()[0]);
  StringRef target = write.getBuffer().getValue();
  std::string kept = keptName(stage);
  int64_t width = 2 * sliceOf(stage).unit, n = *configInt(stage, "n");
  SmallVector<AffineExpr> cols = {c(width)};
  if (width * smsOf(stage) != n)
    cols.push_back(c(n) - d(0) * width);
  epilogue.compute("combine<" + name + ", " + target + "_words, " + kept + ", " + names::kDown +
                       ", " + Twine(*configInt(stage, "top_k")) + ">",
                   {("weights_of<" + topK().getSymName() + ">(cta)").str()},
                   {down, whole(kept), pairWeights()},
                   {rectangle(target, {c(0), d(0) * width}, write.getRows(), cols)});
  return success();
}

} // namespace megalith::task
