//===- ArtifactPlan.cpp - an artifact's plan against its kernels and model --===//

#include "tools/megalith/ArtifactPlan.h"

#include "tools/megalith/Compilation.h"
#include "tools/megalith/Files.h"

#include "mlir/Parser/Parser.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/Path.h"

using namespace llvm;

namespace megalith::cli {

Expected<PrintedKernels> printArtifact(mlir::ModuleOp kernels, mlir::ModuleOp model) {
  const auto name = kernels->getAttrOfType<mlir::StringAttr>("megalith.model");
  auto printed = printKernels(kernels, collectFacts(model, name ? name.getValue() : ""), {});
  if (!printed)
    return with(Exit::Proof, printed.takeError());
  return printed;
}

Expected<PrintedKernels> printArtifact(mlir::ModuleOp kernels, StringRef folder) {
  SmallString<128> file(folder);
  sys::path::append(file, kModelFile);
  Expected<std::string> text = readText(file, "the model's graph");
  if (!text)
    return text.takeError();
  auto model = mlir::parseSourceString<mlir::ModuleOp>(*text, kernels.getContext(), file);
  if (!model)
    return failure(Exit::Input, "{0}: expected valid moe IR but got the errors above", file);
  return printArtifact(kernels, *model);
}

Error checkPlan(const runtime::Plan &plan, runtime::Plan expected, StringRef file, Exit exit) {
  expected.cudaVersion = plan.cudaVersion;
  for (auto &&[ours, theirs] : zip(expected.kernels, plan.kernels)) {
    ours.cubin = theirs.cubin;
    ours.cubinDigest = theirs.cubinDigest;
    ours.resources = theirs.resources;
  }
  const std::string is = runtime::toJson(plan), should = runtime::toJson(expected);
  if (is == should)
    return Error::success();
  SmallVector<StringRef> got, wanted;
  StringRef(is).split(got, '\n');
  StringRef(should).split(wanted, '\n');
  size_t line = 0;
  while (line < got.size() && line < wanted.size() && got[line] == wanted[line])
    ++line;
  auto at = [&](ArrayRef<StringRef> lines) {
    return line < lines.size() ? lines[line].trim().rtrim(",") : StringRef("its end");
  };
  return failure(
      exit,
      "{0}, line {1}: expected {2} as {3} and {4} say but got {5}; compile again instead "
      "of editing it",
      file, line + 1, at(wanted), kKernelsFile, kModelFile, at(got));
}

Error checkArtifact(const runtime::Plan &plan, mlir::ModuleOp kernels, StringRef folder) {
  Expected<PrintedKernels> printed = printArtifact(kernels, folder);
  if (!printed)
    return with(Exit::Input, printed.takeError());
  SmallString<128> file(folder);
  sys::path::append(file, kPlanFile);
  return checkPlan(plan, std::move(printed->plan), file, Exit::Input);
}

} // namespace megalith::cli
