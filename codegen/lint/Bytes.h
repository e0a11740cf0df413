//===- Bytes.h - The slots and bytes of a logged step --------------*- C++ -*-===//
//
// What a warp's log lines say of barriers, copies and ranges of memory, against what its step
// declares: the slot of that use, the piece, the words of the right set, rows of shared memory.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_CODEGEN_LINT_BYTES_H
#define MEGALITH_CODEGEN_LINT_BYTES_H

#include "codegen/lint/HostLog.h"
#include "codegen/lint/Replay.h"
#include "codegen/lint/Ways.h"

namespace megalith::lint {

/// The checks of one warp of a launch; each says what is wrong, or "".
class Bytes {
public:
  Bytes(const verify::Program &program, const LoggedLaunch &launch, int64_t rank,
        Replayed &replayed);

  /// The step that stands at `place`, with its lines.
  std::string check(const verify::Instr &instr, const Place &place, const LoggedStep &step);
  /// Accesses of shared memory lie in what `place` may touch.
  std::string checkShared(const Place &place, const LoggedStep &step);
  /// What lies between two marks, `place` with what steps there may touch.
  std::string checkBetween(const Place &place, const LoggedStep &between);

private:
  /// The bytes of a set of an exchange that an access declares.
  struct Words {
    int64_t setBegin, setEnd, rowBytes, begin, end, colBegin, colEnd;
    bool hasAnyRow;
    bool isInside(int64_t begin, int64_t end) const;
  };
  Words wordsOf(const verify::Access &access, const Place &place) const;
  std::string checkBarrier(const verify::Instr &instr, uint64_t use, llvm::StringRef kind,
                           const LoggedStep &step);
  std::string checkCopy(const verify::Instr &instr, const Place &place, const LoggedStep &step);
  std::string checkWords(const verify::Instr &instr, const Place &place, const LoggedStep &step);
  std::string checkRearm(const verify::Instr &instr, const Place &place, const LoggedStep &step);
  std::string checkLaunches(const verify::Instr &instr, const Place &place, const LoggedStep &step);
  /// The buffer's name without layer and rank; "" if it is another rank's and may not be.
  llvm::StringRef nameOf(llvm::StringRef logged, bool isOfAny = false) const;
  /// Whether it is another rank's memory; what is of no rank (faults) is not.
  bool isOthers(llvm::StringRef logged) const;
  std::string bufferAt(int64_t offset) const;

  const verify::Program &program;
  const uint64_t n;    ///< of the launch, or of the first of a looping kernel's step
  const int64_t first; ///< launch that a looping kernel ran
  const int64_t rank;
  const std::string own; ///< what names of this rank's buffers begin with
  Replayed &replayed;
  llvm::SmallVector<Span, 4> tables;
};

} // namespace megalith::lint

#endif // MEGALITH_CODEGEN_LINT_BYTES_H
