//===- Linter.h - One kernel's PTX under the lint -----------------*- C++ -*-===//
//
// What the steps of `lint` share, a file each: what each mark asks for (MarkRules), what is known
// where (Flow), instructions in and out of marks (Between), the barriers' set-up (Barriers) and the
// order of marks (MarkOrder). Lint.cpp goes through them.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_CODEGEN_LINT_LINTER_H
#define MEGALITH_CODEGEN_LINT_LINTER_H

#include "codegen/lint/Lint.h"
#include "codegen/lint/Ptx.h"
#include "codegen/lint/Regions.h"
#include "codegen/lint/Summary.h"

#include <map>
#include <memory>

namespace megalith::lint {

class Linter {
public:
  /// `kernel`: null for one without role regions. `name`: its entry.
  Linter(task::KernelOp kernel, llvm::StringRef name) : kernel(kernel), name(name) {}

  std::vector<Finding> run(llvm::StringRef ptx);

private:
  /// What is known where an instruction begins, whichever way led there.
  struct State {
    bool isReached = false;
    int open = -1; ///< index of the mark whose end has not come
    // Since the mark began, on every way and on some way.
    uint8_t must = 0, may = 0;
    int expected = -1; ///< place of the expect_tx; -1: none or several
    // Since the kernel began.
    bool isReady = false;   ///< on every way: barriers are usable
    bool hasWaited = false; ///< on every way: the launch before is over
    bool hasBegun = false;  ///< on some way: a role is at work
    bool hasInit = false, hasFence = false;

    bool operator==(const State &) const = default;
  };
  enum Fact : uint8_t { Required = 1, Met = 2, Expected = 4, Copied = 8 };

  /// What may and must stand between a mark and its end.
  struct Rule {
    Mark mark;
    task::EdgeOp edge;                                   ///< null: a re-arming
    llvm::SmallVector<task::EdgeOp, 2> also;             ///< which polls of the edge wait for too
    llvm::SmallVector<llvm::StringRef, 3> required, may; ///< beginnings of opcodes
    llvm::StringRef width;                               ///< of words: ".b32" or ".b128"
    bool isSure = false;                                 ///< on every way, not only by a lane
    bool needsMeeting = false;                           ///< of the warp's lanes, before it
    bool copies = false;                                 ///< by bulk copies, for certain
  };

  void note(int line, std::string text);

  // What each mark asks for.
  void findRules();
  /// Finds the mark's edge and its row in the table; false if there is none.
  bool complete(Rule &rule);
  /// Whether a strong instruction may stand in the rule's marks, and, if it is the required one.
  enum class Fit { No, Allowed, Required };
  Fit fitOf(const Rule &rule, llvm::StringRef opcode);
  std::string wanted(const Rule &rule);

  // What is known where.
  State after(State state, int place);
  void flow();
  int lineAt(int place) const;
  std::string openText(int open);

  // What is wrong in and out of marks.
  void judge();
  void judge(const State &state, const Instruction &instruction, int place);
  /// Whether weak stores must come behind griddepcontrol.wait as PTX shows it. What a kernel with
  /// --trace records may come before; in a looping kernel ways that skip the wait are many, and
  /// none of them is ever taken: there the proof and the order of marks stand alone.
  bool storesLate();
  void judgeEnd(const State &state, const Instruction &instruction);
  void judgeInside(const State &state, const Instruction &instruction);
  void judgeOutside(const State &state, const Instruction &instruction);
  void judgeCall(const State &state, const Instruction &instruction, int place);
  /// " for @w_full", or nothing if no edge has that number.
  std::string nameOf(int64_t id);

  /// Each slot of each edge has a barrier of its arrivals, and nothing else is one.
  void checkInits();

  // The order of marks.
  /// What a place does in the language of role regions; "" if nothing.
  std::string markAt(int place) const;
  /// The marks that come next behind `from`, and an end of the kernel if there is one.
  struct Follow {
    std::vector<int> marks;
    int end = -1;
  };
  const Follow &followOf(int from);
  void checkOrder();

  task::KernelOp kernel;
  std::string name;
  std::vector<Function> functions;
  Function whole; ///< the entry, with marks of what it calls
  const Function *entry = nullptr;
  Summaries *summaries = nullptr;
  std::unique_ptr<Regions> regions;
  std::vector<Rule> rules;
  std::map<std::string, int> ruleByText;
  std::vector<int> ruleOf; ///< by place of a mark
  std::vector<State> states;
  std::map<int, Follow> follows;
  std::vector<Finding> findings;
};

} // namespace megalith::lint

#endif // MEGALITH_CODEGEN_LINT_LINTER_H
