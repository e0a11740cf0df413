//===- Ptx.h - PTX as functions of instructions ------------------*- C++ -*-===//
//
// As much of PTX as the lint needs: statements with their line, where control goes next, the marks
// that device headers leave (platform::mark), and what a register holds where that is plain.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_CODEGEN_LINT_PTX_H
#define MEGALITH_CODEGEN_LINT_PTX_H

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace megalith::lint {

/// `// megalith <verb> @<name> <order>`, without the slashes: "wait @w_full acquire.cta".
struct Mark {
  std::string verb, name, order;
  std::string text() const { return verb + " @" + name + " " + order; }
};

struct Instruction {
  enum Kind { Plain, Branch, Call, Return, Trap, Begin, End };
  Kind kind = Plain;
  int line = 0;
  bool isConditional = false; ///< stands behind a predicate
  std::string opcode;         ///< "ld.relaxed.gpu.global.b32"
  std::vector<std::string> operands;
  llvm::SmallVector<int, 1> targets; ///< of a branch: places in Function::code
  std::string callee;
  Mark mark; ///< of Begin
};

struct Function {
  std::string name;
  int line = 0;
  bool isEntry = false, isNoReturn = false;
  std::vector<Instruction> code;

  /// Where control may go from the instruction at `place`; code.size() stands for the end.
  llvm::SmallVector<int, 2> next(int place) const;

  /// A number that a register (or literal) certainly holds.
  std::optional<int64_t> constant(llvm::StringRef operand) const;
  /// How a register's value was computed, as text without register names as far as those have one
  /// definition: equal texts are equal values.
  std::string value(llvm::StringRef operand) const;
  /// The `index`th argument of the call at `place`, "" if it cannot be told.
  std::string argument(int place, int index) const;
  /// What the call at `place` stores as "[param<index>+<offset>]", as it stands there; "" if it
  /// cannot be told.
  std::string given(int place, llvm::StringRef parameter) const;

  llvm::StringMap<int> definitions; ///< register -> place of its only definition, or -1

private:
  std::string value(llvm::StringRef operand, int depth) const;
};

/// Reads a module. Texts that are not PTX as NVRTC prints it are refused with their line.
llvm::Expected<std::vector<Function>> readPtx(llvm::StringRef text);

} // namespace megalith::lint

#endif // MEGALITH_CODEGEN_LINT_PTX_H
