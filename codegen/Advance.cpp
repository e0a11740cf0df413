//===- Advance.cpp - The kernel between two steps ---------------------------===//

#include "codegen/Advance.h"

#include "codegen/Writer.h"
#include "runtime/abi.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

namespace megalith {

using namespace runtime;

static constexpr llvm::StringLiteral kAdvance = "advance", kCandidates = "candidates",
                                     kTokens = "tokens";

std::string addAdvance(Plan &plan) {
  const Buffer *candidates = plan.buffer(kCandidates);
  if (!candidates)
    return "";
  const int64_t sms = candidates->shape.back() / 2;
  plan.buffers.push_back({.name = kTokens.str(),
                          .kind = BufferKind::Tokens,
                          .bytes = plan.rows * 4,
                          .init = BufferInit::Poison,
                          .element = Element::I32,
                          .shape = {1, plan.rows}});
  plan.kernels.push_back(
      {.name = kAdvance.str(),
       .file = ("kernels/" + kAdvance + ".cu").str(),
       .smemBytes = 4 * kMaxRows, // the chosen tokens
       .slots = {{0, kCandidates.str(), SlotRole::Output}, {1, kTokens.str(), SlotRole::Tokens}}});
  plan.advance = kAdvance.str();

  Writer out;
  out.comment(llvm::formatv("Kernel {0} for {1}, at most {2} row{3}: behind every step's launches.",
                            kAdvance, plan.target, plan.rows, plan.rows == 1 ? "" : "s")
                  .str());
  out.comment("Emitted by Megalith; change what it was compiled from, not this.");
  out.line("#include \"codegen/device/advance.cuh\"");
  out.blank();
  out.line("namespace megalith::advance {");
  out.blank();
  out.line("constexpr int candidates = 0;");
  out.line("constexpr int tokens = 1;");
  out.blank();
  out.open("MEGALITH_KERNEL(advance) {");
  out.line(
      llvm::formatv("advance_step<{0}, {1}, candidates, tokens>(args);", plan.rows, sms).str());
  out.close("}");
  out.blank();
  out.line("} // namespace megalith::advance");
  return out.text();
}

} // namespace megalith
