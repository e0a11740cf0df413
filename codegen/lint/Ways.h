//===- Ways.h - The ways through a role's code ---------------------*- C++ -*-===//
//
// Where a warp of a role may stand in its code, and where it may be next: loops with the bounds
// that the IR gives them on its SM, dynamic ones with every number of turns in their range; of a
// kernel that loops over launches those that it ran, one behind the other.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_CODEGEN_LINT_WAYS_H
#define MEGALITH_CODEGEN_LINT_WAYS_H

#include "passes/verify/Program.h"

#include <set>
#include <string>

namespace megalith::lint {

/// Bytes of shared memory that a step may touch.
struct Span {
  int64_t begin, end;
  bool mayWrite;
};

/// A place in a role's code, on one way through its loops.
struct Place {
  uint32_t pc = 0;
  int64_t launch = 0;                 ///< of the step, in a kernel that loops over its launches
  llvm::SmallVector<int64_t, 6> dims; ///< the SM, then loop indices
  std::vector<uint32_t> uses;         ///< of each edge
  uint32_t begun = 0;                 ///< a bit for each mark of the step here that has come
  // Of the steps since the last mark: what they may touch.
  llvm::SmallVector<Span, 8> spans;
  llvm::SmallVector<llvm::StringRef, 4> written; ///< global buffers
};

/// A role's code on one SM.
class Ways {
public:
  /// Through launches [first, end) of a step, if the kernel loops over them, else [0, 1).
  Ways(const verify::Program &program, int role, int64_t sm, int64_t first, int64_t end);

  Place begin() const;
  /// Forgets what `expand` has been to: a step has been taken.
  void moveOn() { seen.clear(); }
  /// Adds the places with a mark to come that can be reached without one, and the code's end.
  void expand(Place place, std::vector<Place> &places);
  bool isAtEnd(const Place &place) const { return place.pc == code.size(); }

  const verify::Instr &instrAt(const Place &place) const { return code[place.pc]; }
  /// What the step there shows in the log: one mark, or one for each exchange that it publishes to.
  llvm::ArrayRef<std::string> marksAt(const Place &place) const { return marks[place.pc]; }
  /// Whether a poll or publication has shown all its marks, and may be over.
  bool isWhole(const Place &place) const;
  /// What a step may touch.
  void addTouched(const verify::Instr &instr, Place &place) const;

private:
  std::vector<std::string> marksOf(const verify::Instr &instr) const;
  std::pair<int64_t, int64_t> tripsOf(const verify::Loop &loop, const Place &place) const;
  size_t bodyOf(int64_t launch) const;
  uint32_t bodyBegin(int64_t launch) const;

  const verify::Program &program;
  const int role;
  const int64_t sm;
  const std::vector<verify::Instr> &code;
  const int64_t first, end;
  std::vector<std::vector<std::string>> marks; ///< of each step of the code
  std::set<std::pair<std::array<uint64_t, 2>, std::vector<int64_t>>> seen;
};

} // namespace megalith::lint

#endif // MEGALITH_CODEGEN_LINT_WAYS_H
