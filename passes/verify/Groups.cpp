#include "passes/verify/Groups.h"

using namespace megalith::verify;

namespace {

/// Walks one role's regions, loops iteration by iteration, but only where something varies.
class Walk {
public:
  Walk(const Program &program, const Valuation &valuation, Signature &signature)
      : program(program), valuation(valuation), signature(signature) {}

  /// False if there is no end of it.
  bool run(llvm::ArrayRef<Instr> role, int64_t sm) {
    code = role;
    dims = {sm};
    iterations = 0;
    block(0, code.size());
    return iterations <= kMaxSteps;
  }

private:
  void block(size_t begin, size_t end) {
    for (size_t at = begin; at < end;) {
      const Instr &instr = code[at];
      const bool isNested = instr.kind == Instr::Stage || instr.kind == Instr::LoopBegin;
      const size_t next = isNested ? instr.end : at + 1;
      if (instr.varies && instr.kind == Instr::Stage)
        stage(instr, at + 1, next);
      else if (instr.varies && instr.kind == Instr::LoopBegin)
        loop(instr, at + 1, next - 1);
      else if (instr.varies)
        step(instr);
      at = next;
    }
  }

  void stage(const Instr &instr, size_t begin, size_t end) {
    const bool takesPart = dims.front() < instr.sms;
    signature.push_back(takesPart);
    if (takesPart)
      block(begin, end);
  }

  void loop(const Instr &instr, size_t begin, size_t end) {
    const Loop &of = program.loops[instr.loop];
    const int64_t trips = program.tripsOf(of, valuation, dims.data());
    signature.push_back(trips);
    const bool varies = llvm::any_of(code.slice(begin, end - begin),
                                     [](const Instr &inner) { return inner.varies; });
    if (!varies)
      return;
    dims.push_back(0);
    for (int64_t i = 0; i < trips && ++iterations <= kMaxSteps; ++i) {
      dims.back() = i;
      block(begin, end);
    }
    dims.pop_back();
  }

  void step(const Instr &instr) {
    for (const Access &access : program.accessesOf(instr))
      if (access.isShared && access.uses(0)) {
        const Rect rect = access.at(dims.data());
        signature.insert(signature.end(), {rect.row, rect.col, rect.cols});
      }
  }

  const Program &program;
  const Valuation &valuation;
  Signature &signature;
  llvm::ArrayRef<Instr> code;
  llvm::SmallVector<int64_t, 8> dims;
  int64_t iterations = 0;
};

} // namespace

std::optional<Signature> megalith::verify::signatureOf(const Program &program,
                                                       const Valuation &valuation, int64_t sm) {
  Signature signature;
  Walk walk(program, valuation, signature);
  for (const auto &role : program.code)
    if (!walk.run(role, sm))
      return std::nullopt;
  return signature;
}
