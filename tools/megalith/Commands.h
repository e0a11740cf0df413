//===- Commands.h - the subcommands -----------------------------------------===//
//
// One file per command. A command prints results to stdout and progress to stderr; its error
// becomes one line on stderr and the exit code.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_TOOLS_MEGALITH_COMMANDS_H
#define MEGALITH_TOOLS_MEGALITH_COMMANDS_H

#include "tools/megalith/Arguments.h"
#include "tools/megalith/Failure.h"

namespace megalith::cli {

struct Command {
  Syntax syntax;
  llvm::Error (*run)(const Arguments &arguments);
};

extern const Command kBench;
extern const Command kCalibrate;
extern const Command kCompile;
extern const Command kExplain;
extern const Command kImport;
extern const Command kReport;
extern const Command kRun;
extern const Command kSimulate;
extern const Command kVerify;

} // namespace megalith::cli

#endif // MEGALITH_TOOLS_MEGALITH_COMMANDS_H
