//===- Arguments.h - options of one command ---------------------------------===//
//
// A command declares its options in a table and reads typed values. Not llvm::cl, because every
// mistake must be told in one line with what was expected and what was found, and because linking
// LLVM's libraries would add their options to ours.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_TOOLS_MEGALITH_ARGUMENTS_H
#define MEGALITH_TOOLS_MEGALITH_ARGUMENTS_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace megalith::cli {

/// `--name VALUE`, `--name=VALUE`, or, without a value, `--name`. A name of one letter takes one
/// dash.
struct Option {
  llvm::StringRef name;
  llvm::StringRef value; ///< what the help calls the value: "<n>"; empty: a switch
  llvm::StringRef help;
  bool required = false;
};

// The help of --quant and --act, of commands that take a config, and of those that take one or a
// plan.
inline constexpr llvm::StringLiteral kQuantHelp =
    "nvfp4 (experts), none, or a hf_quant_config.json (the one beside the config)";
inline constexpr llvm::StringLiteral kConfigQuantHelp =
    "with a config: nvfp4 (experts), none, or a hf_quant_config.json (the one beside it)";
inline constexpr llvm::StringLiteral kActHelp = "what NVFP4 experts read: bf16 or nvfp4 (bf16)";
inline constexpr llvm::StringLiteral kKvHelp =
    "what keys and values are kept as: bf16 or e4m3 (bf16)";
inline constexpr llvm::StringLiteral kConfigKvHelp =
    "with a config: what keys and values are kept as: bf16 or e4m3 (bf16)";
inline constexpr llvm::StringLiteral kConfigActHelp =
    "with a config: what NVFP4 experts read, bf16 or nvfp4 (bf16)";

/// What a command takes. All texts are for its --help.
struct Syntax {
  llvm::StringRef command;
  llvm::StringRef summary;        ///< half a sentence
  llvm::StringRef positional;     ///< "<config.json>"; a command takes exactly one, or ("") none
  llvm::StringRef positionalHelp; ///< half a sentence
  llvm::ArrayRef<Option> options;
  llvm::StringRef example;     ///< a command line that works from the checkout's root
  llvm::StringRef subject;     ///< "<stage>": a second argument that may be left out; none
  llvm::StringRef subjectHelp; ///< half a sentence
};

/// A command's arguments, checked against its syntax.
class Arguments {
public:
  /// Fails (exit code 2) on unknown, repeated or missing options and values.
  static llvm::Expected<Arguments> parse(const Syntax &syntax,
                                         llvm::ArrayRef<llvm::StringRef> words);

  llvm::StringRef positional() const { return position; }
  llvm::StringRef subject() const { return second; } ///< "" if left out
  bool has(llvm::StringRef name) const { return values.contains(name); }
  /// The option's text, or `otherwise`.
  llvm::StringRef text(llvm::StringRef name, llvm::StringRef otherwise = "") const;

  /// One of `choices`, the first by default.
  llvm::Expected<llvm::StringRef> choice(llvm::StringRef name,
                                         llvm::ArrayRef<llvm::StringRef> choices) const;
  /// A number from `least` to `most`.
  llvm::Expected<int64_t> integer(llvm::StringRef name, int64_t least, int64_t most,
                                  int64_t otherwise) const;
  /// Numbers separated by commas. Empty if the option is not given.
  llvm::Expected<std::vector<int64_t>> integers(llvm::StringRef name, int64_t least,
                                                int64_t most) const;
  /// Different ones of `choices`, separated by commas. Empty if the option is not given.
  llvm::Expected<std::vector<llvm::StringRef>>
  choices(llvm::StringRef name, llvm::ArrayRef<llvm::StringRef> choices) const;

private:
  explicit Arguments(const Syntax &syntax) : syntax(syntax) {}

  Syntax syntax;
  llvm::StringRef position, second;
  std::map<llvm::StringRef, llvm::StringRef> values;
};

/// The text of `--help`.
std::string helpText(const Syntax &syntax);

/// Of `names`, the one that `word` may be a slip of, or "".
llvm::StringRef nearest(llvm::StringRef word, llvm::ArrayRef<llvm::StringRef> names);

} // namespace megalith::cli

#endif // MEGALITH_TOOLS_MEGALITH_ARGUMENTS_H
