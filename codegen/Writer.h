//===- Writer.h - Lines of emitted source ------------------------*- C++ -*-===//
//
// Text that clang-format would leave as it is: two spaces a level, lines of at most 100 columns.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_CODEGEN_WRITER_H
#define MEGALITH_CODEGEN_WRITER_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/Twine.h"

#include <string>
#include <vector>

namespace megalith {

class Writer {
public:
  static constexpr size_t kColumns = 100;

  /// A line at the present depth. One that is too long is broken after its `=`, or inside its
  /// longest pair of brackets after commas or semicolons, each line filled.
  void line(const llvm::Twine &text);
  void blank() { lines.emplace_back(); }
  /// `// ` and the words of `text`, in as many lines as they need; further lines start with `hang`
  /// spaces.
  void comment(llvm::StringRef text, size_t hang = 0);
  /// The line opens a block, whose lines are one level deeper until `close`.
  void open(const llvm::Twine &text) {
    line(text);
    ++depth;
  }
  void close(const llvm::Twine &text) {
    --depth;
    line(text);
  }
  /// One level deeper without a brace: the only statement of a loop.
  void indent() { ++depth; }
  void dedent() { --depth; }

  std::string text() const;

private:
  int depth = 0;
  std::vector<std::string> lines;
};

} // namespace megalith

#endif // MEGALITH_CODEGEN_WRITER_H
