//===- megalith.cpp - the command line --------------------------------------===//

#include "tools/megalith/Commands.h"
#include "tools/megalith/Files.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;
using namespace megalith::cli;

static const Command *const kCommands[] = {&kImport, &kCompile,  &kRun,     &kBench, &kCalibrate,
                                           &kVerify, &kSimulate, &kExplain, &kReport};

static std::string overview() {
  std::string text = "megalith: from a Mixture-of-Experts model's config to proved CUDA kernels\n\n"
                     "usage: megalith <command> ...\n\n";
  for (const Command *command : kCommands)
    text += formatv("  {0,-10}{1}\n", command->syntax.command, command->syntax.summary);
  text += "\nEach command explains itself: megalith <command> --help\n"
          "Exit codes: 1 input, 2 command line, 3 proof, 4 run time\n"
          "\nexample:\n  " +
          kImport.syntax.example.str() + "\n";
  return text;
}

/// One line, whatever the message quotes: names of files may hold line ends.
static int fail(const Twine &command, Exit code, StringRef message) {
  errs() << command << ": error: ";
  for (char c : message)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      errs() << formatv("\\x{0:X-2}", unsigned(c));
    else
      errs() << c;
  errs() << "\n";
  return int(code);
}

/// Help, to standard output.
static int print(const Twine &command, StringRef text) {
  if (Error error = writeText("", text))
    return fail(command, Exit::Input, toString(std::move(error)));
  return 0;
}

static bool isHelp(StringRef word) {
  return word == "--help" || word == "-h";
}

int main(int argc, char **argv) {
  SmallVector<StringRef> words(argv + 1, argv + argc), names;
  for (const Command *command : kCommands)
    names.push_back(command->syntax.command);
  const std::string all = join(names, ", ");

  if (words.empty())
    return fail("megalith", Exit::CommandLine,
                "expected a command (" + all + ") but got nothing; see megalith --help");
  if (isHelp(words.front()) || words.front() == "help") {
    return print("megalith", overview());
  }
  const auto *found = find(names, words.front());
  if (found == names.end()) {
    StringRef close = nearest(words.front(), names);
    return fail("megalith", Exit::CommandLine,
                formatv("expected a command ({0}) but got '{1}'{2}; see megalith --help", all,
                        words.front(), close.empty() ? "" : ", did you mean " + close.str() + "?")
                    .str());
  }
  const Command &command = *kCommands[found - names.begin()];
  const std::string name = "megalith " + command.syntax.command.str();
  ArrayRef<StringRef> rest = ArrayRef(words).drop_front();
  if (any_of(rest, isHelp)) {
    return print(name, helpText(command.syntax));
  }

  Expected<Arguments> arguments = Arguments::parse(command.syntax, rest);
  int code = 0;
  handleAllErrors(
      arguments ? command.run(*arguments) : arguments.takeError(),
      [&](const Failure &failure) { code = fail(name, failure.code, failure.message()); },
      // Every error of a command has a code; one without would be a fault of ours.
      [&](const ErrorInfoBase &error) { code = fail(name, Exit::Run, error.message()); });
  return code;
}
