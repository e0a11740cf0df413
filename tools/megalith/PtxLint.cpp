//===- PtxLint.cpp - the lint of a plan's PTX -------------------------------===//

#include "tools/megalith/PtxLint.h"

#include "codegen/headers.h"
#include "codegen/lint/Lint.h"
#include "tools/megalith/Failure.h"
#include "tools/megalith/Files.h"

#include "llvm/ADT/STLExtras.h"

#include <future>

using namespace llvm;

namespace megalith::cli {

Error lintSources(const runtime::Nvrtc &nvrtc, ArrayRef<LintedSource> sources, StringRef target,
                  StringRef folder) {
  std::vector<std::future<Expected<std::string>>> pending;
  for (const LintedSource &source : sources)
    pending.push_back(std::async(std::launch::async, [&] {
      return nvrtc.ptx(source.source, source.name + ".cu", deviceHeaders(), target);
    }));
  Error errors = Error::success();
  int count = 0;
  for (auto [source, each] : zip_equal(sources, pending)) {
    Expected<std::string> ptx = each.get();
    if (!ptx) {
      if (errors) // the first is enough for the user, but each must be looked at
        consumeError(ptx.takeError());
      else
        errors = with(Exit::Run, ptx.takeError());
      continue;
    }
    if (!folder.empty() && !errors)
      errors = writeText((folder + "/" + source.name + ".ptx").str(), *ptx);
    // MLIR's attributes are not made from several threads here: lint one after the other.
    const auto found =
        source.kernel ? lint::lint(source.kernel, *ptx) : lint::lintAlone(source.name, *ptx);
    for (const lint::Finding &finding : found)
      if (++count <= 20)
        errs() << source.name << ".ptx: " << finding.text << "\n";
  }
  if (errors || count == 0)
    return errors;
  return failure(Exit::Proof,
                 "expected the PTX to synchronise as was proved but {0} place{1} {2} not, the "
                 "first of them above; verify --ptx FOLDER keeps the PTX",
                 count, count == 1 ? "" : "s", count == 1 ? "does" : "do");
}

} // namespace megalith::cli
