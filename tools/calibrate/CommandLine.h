//===- CommandLine.h - What megalith calibrate takes -------------*- C++ -*-===//
#ifndef MEGALITH_TOOLS_CALIBRATE_COMMANDLINE_H
#define MEGALITH_TOOLS_CALIBRATE_COMMANDLINE_H

#include "tools/megalith/Arguments.h"
#include "tools/megalith/Failure.h"

namespace megalith::calibrate {

/// Of megalith calibrate, and of megalith-calibrate.
extern const cli::Syntax kSyntax;

/// Measures a GPU and prints its cost table, writing it with -o if every measure succeeded; or,
/// with
/// --show, prints a table.
llvm::Error run(const cli::Arguments &arguments);

} // namespace megalith::calibrate

#endif // MEGALITH_TOOLS_CALIBRATE_COMMANDLINE_H
