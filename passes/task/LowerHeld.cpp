// Weights that consumers hold in registers while other SMs make the words that they will multiply.
//
// A stage behind an exchange waits for words while its first pieces are in the ring already. With
// one row its consumers have registers to spare then: they take what they can of these pieces, and
// give the slots back. So more is streamed before the words come, and less is left to do behind
// them: loads of bf16 weights, decoding of NVFP4. The products meet the sums in the same order.
#include "passes/task/Handoffs.h"
#include "passes/task/Lowering.h"

using namespace mlir;

namespace megalith::task {

/// Most pieces of bf16 weights, 16 registers a lane each of 16 KB. Words that are polled to shared
/// memory leave room for six; a row that is added up from pairs' words needs registers itself.
static constexpr int64_t kMostHeld = 6, kMostHeldBesidePairs = 2;

// Only in kernels of several ranks, whose words have further to go: what it is worth elsewhere has
// not been measured.
int64_t KernelLowering::heldPieces(StageOp stage) {
  if (kernel.getRows() != 1 || kernel.getRanks() == 1 || rowsComeByLaunch(kernel) ||
      partsOf(stage) > 1 || joinsTiles(stage) || quantizesInput(stage))
    return 0;
  AccessAttr input = pairsOf(stage) ? cast<AccessAttr>(stage.getReads()[0]) : inputOf(stage);
  if (!input || !exchange(input.getBuffer().getValue()) || input.getSet() != Set::Current)
    return 0; // there is nothing to wait for
  const SmallVector<TileRun> runs = tileRuns(stage);
  if (runs.size() != 1 || runs.front().trips.front() != c(1))
    return 0;
  const int64_t blocks = runs.front().blocks, pieces = sliceOf(stage).blocks / blocks;
  if (weightsOf(stage).getNvfp4()) // one block: 64 registers
    return stage.getKind() == StageKind::ExpertDown && pieces > 1 ? 1 : 0;
  if (stage.getKind() != StageKind::Linear || weightsOf(stage).getWide() || blocks == 1)
    return 0;
  return std::min(pieces - 1, pairsOf(stage) ? kMostHeldBesidePairs : kMostHeld);
}

// Before the stage's rows are taken.
void KernelLowering::holdPieces(StageOp stage, Steps &consumer) {
  const int64_t pieces = heldPieces(stage);
  if (pieces == 0)
    return;
  const std::string name = stage.getSymName().str();
  auto hold = [&](const Twine &callee, Steps::Args args) {
    consumer.wait(names::kFull, "const int slot");
    consumer.compute(callee, args, {}, {}, {}, /*readsRing=*/true);
    consumer.release(names::kFree);
  };
  if (weightsOf(stage).getNvfp4()) {
    consumer.local("held", "DecodedBlock<" + name + ">");
    hold("decode_block<" + name + ", " + names::kRing + ">", {"held", "slot"});
    return;
  }
  consumer.local("held", "HeldPieces<" + name + ", Cta, " + std::to_string(pieces) + ">");
  consumer.unrolled("piece", {c(pieces)}, [&] {
    hold("hold_piece<" + name + ", " + names::kRing + ">", {"held", "slot", "piece"});
  });
}

void KernelLowering::multiplyHeld(StageOp stage, Steps &consumer, AccessAttr rows) {
  const StringRef callee = weightsOf(stage).getNvfp4() ? "multiply_decoded<" : "multiply_held<";
  consumer.compute(callee + stage.getSymName() + ">", {"sum", "held", "column"}, {rows}, {});
}

} // namespace megalith::task
