//===- CommandLine.cpp - What megalith calibrate takes --------------------===//

#include "tools/calibrate/CommandLine.h"

#include "tools/calibrate/Calibrate.h"
#include "tools/megalith/Files.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

using llvm::Error;
using llvm::StringRef;

namespace megalith::calibrate {

static constexpr cli::Option kOptions[] = {
    {"target", "<name>", "sm_90a or sm_100a (sm_90a)"},
    {"o", "<file>", "write the cost table there, as JSON"},
    {"only", "<prefix>", "measure only costs whose name begins so; not with -o"},
    {"device", "<n>", "number of the GPU (0)"},
    {"show", "<file>", "measure nothing; check and print a cost table"},
};

constinit const cli::Syntax kSyntax = {
    "calibrate", "measure what a GPU's memory, exchanges and units cost", "", "",
    kOptions,    "megalith calibrate --show passes/costs/h200.json"};

/// Prints a table for people.
static Error print(const costs::CostTable &table) {
  return cli::writeText("", costs::toText(table));
}

static Error show(const cli::Arguments &arguments) {
  for (StringRef other : {"target", "o", "only", "device"})
    if (arguments.has(other))
      return cli::failure(cli::Exit::CommandLine,
                          "--show: expected alone but got {0}{1} too; leave it out",
                          other.size() > 1 ? "--" : "-", other);
  auto table = costs::readCostTable(arguments.text("show").str());
  if (!table)
    return cli::with(cli::Exit::Input, table.takeError());
  return print(*table);
}

/// Said before anything is measured.
static Error checkFolder(StringRef file) {
  StringRef folder = llvm::sys::path::parent_path(file);
  if (folder.empty())
    folder = ".";
  if (!llvm::sys::fs::is_directory(folder))
    return cli::failure(cli::Exit::Input, "-o {0}: expected a folder {1} but there is none", file,
                        folder);
  if (auto error = llvm::sys::fs::access(folder, llvm::sys::fs::AccessMode::Write))
    return cli::failure(cli::Exit::Input, "-o {0}: cannot write into {1}: {2}", file, folder,
                        error.message());
  return Error::success();
}

/// Names the measures that failed, the first with its reason.
static Error failed(const Result &result, StringRef file) {
  std::vector<std::string> names;
  for (const Failure &failure : result.failures)
    names.push_back(failure.name);
  return cli::failure(cli::Exit::Run, "{0} measures failed ({1}){2}; the first: {3}", names.size(),
                      llvm::join(names, ", "),
                      file.empty() ? std::string() : (", so " + file + " is not written").str(),
                      result.failures.front().reason);
}

Error run(const cli::Arguments &arguments) {
  if (arguments.has("show"))
    return show(arguments);
  Options options;
  auto target = arguments.choice("target", {"sm_90a", "sm_100a"});
  if (!target)
    return target.takeError();
  options.target = target->str();
  auto device = arguments.integer("device", 0, 1023, 0);
  if (!device)
    return device.takeError();
  options.ordinal = int(*device);
  options.only = arguments.text("only").str();
  const std::string file = arguments.text("o").str();
  if (!options.only.empty() && !file.empty())
    return cli::failure(cli::Exit::CommandLine,
                        "-o: expected a whole table but --only {0} measures a part; leave one out",
                        options.only);
  if (!file.empty())
    if (Error error = checkFolder(file))
      return error;
  auto result = calibrate(options, [](StringRef line) {
    llvm::errs() << line << "\n";
    llvm::errs().flush();
  });
  if (!result)
    return cli::with(cli::Exit::Run, result.takeError());
  if (Error error = print(result->table))
    return error;
  if (!result->failures.empty())
    return failed(*result, file);
  return file.empty() ? Error::success() : cli::writeText(file, costs::toJson(result->table));
}

} // namespace megalith::calibrate
