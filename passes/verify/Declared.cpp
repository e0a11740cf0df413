//===- Declared.cpp - ranges of symbols and sizes of tables -----------------===//
//
// A proof is one of all cases only if a symbol's declared range holds every value that its
// expression can have. The expressions are C++, so the prover knows those that the lowering makes,
// by what they are of: a stage, whose shape says how far they go.
//
//===----------------------------------------------------------------------===//
#include "passes/verify/Declared.h"

#include "passes/bounds/Bounds.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace megalith;
using namespace megalith::task;
using namespace megalith::verify;

namespace {

using StageBounds = llvm::MapVector<StageOp, Bounds>;

std::string textOf(const SymbolBound &bound) {
  return llvm::formatv("in 0 to {0}{1}{2}{3} = \"{4}\"", bound.max, bound.perSm ? " per_sm" : "",
                       bound.after.empty() ? "" : " after @", bound.after, bound.expr);
}

std::string textOf(const TableBound &bound) {
  return llvm::formatv("size {0} {1} = \"{2}\"", bound.size, stringifyAxiom(bound.axiom),
                       bound.expr);
}

std::string textOf(SymbolOp op) {
  return llvm::formatv("in {0} to {1}{2}{3}{4} = \"{5}\"", op.getMin(), op.getMax(),
                       op.getPerSm() ? " per_sm" : "", op.getAfter() ? " after @" : "",
                       op.getAfter().value_or(""), op.getExpr());
}

std::string textOf(TableOp op) {
  return llvm::formatv("size {0} {1} = \"{2}\"", op.getSize(), stringifyAxiom(op.getAxiom()),
                       op.getExpr());
}

/// The declaration against what each stage that has one of its name makes of it.
template <typename Op, typename Bound>
LogicalResult verifyOne(Op op, const StageBounds &stages, std::vector<Bound> Bounds::*list,
                        StringRef what) {
  const std::string got = textOf(op);
  bool isKnown = false;
  for (const auto &[stage, bounds] : stages)
    for (const Bound &bound : bounds.*list) {
      if (bound.name != op.getSymName())
        continue;
      isKnown = true;
      const std::string expected = textOf(bound);
      if (got == expected)
        continue;
      auto error = op.emitOpError()
                   << "@" << op.getSymName() << " of kernel @"
                   << op->template getParentOfType<KernelOp>().getSymName() << ": expected '"
                   << expected << "', " << what << " by the shape of stage @"
                   << const_cast<StageOp &>(stage).getSymName() << ", but got '" << got
                   << "': a proof would be of other cases than those that run; compile again";
      error.attachNote(stage->getLoc()) << "the stage is here";
      return failure();
    }
  if (isKnown)
    return success();
  return op.emitOpError() << "@" << op.getSymName() << " of kernel @"
                          << op->template getParentOfType<KernelOp>().getSymName()
                          << ": expected one that follows from the shape of an attention, merge or "
                             "expert stage, since nothing else says "
                          << what << ", but got '" << got << "'; only a kernel of kind \"" << kToy
                          << "\", which no plan launches, may declare its own";
}

/// A name that a step of `stage` uses is one that this stage has bounds for: another's share of
/// tiles, say, has another range.
template <typename Bound>
bool isOf(StageOp stage, StringRef name, const StageBounds &stages,
          std::vector<Bound> Bounds::*list) {
  auto it = stages.find(stage);
  return it != stages.end() &&
         llvm::any_of(it->second.*list, [&](const Bound &bound) { return bound.name == name; });
}

/// An index function of experts stays below how many the weights have.
LogicalResult verifyExperts(Operation *op, AccessAttr access) {
  auto kernel = op->getParentOfType<KernelOp>();
  auto weights = kernel.lookup<WeightsOp>(access.getBuffer());
  auto table = kernel.lookup<TableOp>(access.getTable());
  if (!weights || !table || table.getSize() <= weights.getExperts())
    return success();
  auto error = op->emitOpError() << "reads " << access.getBuffer() << " of kernel @"
                                 << kernel.getSymName() << " at " << access.getTable()
                                 << ", which is below " << table.getSize()
                                 << ", but the weights are of " << weights.getExperts()
                                 << " experts; expected as many";
  error.attachNote(weights.getLoc()) << "the weights are here";
  return failure();
}

} // namespace

LogicalResult verify::verifyDeclared(KernelOp kernel) {
  auto symbols = kernel.getOps<SymbolOp>();
  auto tables = kernel.getOps<TableOp>();
  for (SymbolOp op : symbols)
    if (op.getAfterAttr() && !kernel.lookup<EdgeOp>(op.getAfterAttr()))
      return op.emitOpError() << "@" << op.getSymName() << " of kernel @" << kernel.getSymName()
                              << " is known after " << op.getAfterAttr()
                              << ", which is no edge of the kernel; expected one";
  if (symbols.empty() && tables.empty())
    return success();
  if (kernel.getKind() == kToy) {
    auto module = kernel->getParentOfType<ModuleOp>();
    if (!module || !module->hasAttr(kLaunchesAttr))
      return success();
    return kernel.emitOpError() << "@" << kernel.getSymName() << " is of kind \"" << kToy
                                << "\", so nothing bounds its symbols and tables, but the module "
                                   "has launches; expected a kernel of a model's kind";
  }
  StageBounds stages;
  for (auto stage : kernel.getOps<StageOp>())
    stages.insert({stage, boundsOf(stage)});
  LogicalResult result = success();
  for (SymbolOp op : symbols)
    if (failed(verifyOne(op, stages, &Bounds::symbols, "as far as it goes")))
      result = failure();
  for (TableOp op : tables)
    if (failed(verifyOne(op, stages, &Bounds::tables, "as far as it goes")))
      result = failure();
  if (failed(result))
    return failure();
  kernel.walk([&](Operation *op) {
    auto stage = op->getParentOfType<StageOp>();
    if (!stage)
      return;
    if (auto loop = dyn_cast<ForOp>(op))
      if (FlatSymbolRefAttr symbol = loop.getTrips().getSymbol();
          symbol && !isOf(stage, symbol.getValue(), stages, &Bounds::symbols)) {
        loop.emitOpError() << "of stage @" << stage.getSymName() << " in kernel @"
                           << kernel.getSymName() << " runs " << symbol
                           << " times, which is a number of another stage's; expected one of its "
                              "own or a constant";
        result = failure();
      }
    for (StringRef key : {"reads", "writes"})
      if (auto list = op->getAttrOfType<ArrayAttr>(key))
        for (auto access : list.getAsRange<AccessAttr>())
          if (access.getTable() && failed(verifyExperts(op, access)))
            result = failure();
    if (auto copy = dyn_cast<CopyOp>(op);
        copy && copy.getSource().getTable() && failed(verifyExperts(op, copy.getSource())))
      result = failure();
  });
  return result;
}
