#include "tests/mutation/Reasons.h"

#include "codegen/Emitter.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace megalith;
using namespace megalith::task;
using namespace megalith::mutation;

void mutation::locateSteps(ModuleOp plan) {
  int64_t next = 0;
  plan.walk([&](RoleOp role) {
    role.walk([&](Operation *op) {
      if (op != role)
        op->setLoc(NameLoc::get(StringAttr::get(op->getContext(), std::to_string(next++))));
    });
  });
}

std::string mutation::sourceOf(KernelOp kernel) {
  FailureOr<std::string> source = emitKernel(kernel, {.digests = false});
  return succeeded(source) ? *source : "";
}

std::string mutation::arithmeticOf(KernelOp kernel) {
  std::string text;
  llvm::raw_string_ostream out(text);
  std::function<void(Block &)> block = [&](Block &body) {
    for (Operation &op : body)
      if (auto loop = dyn_cast<ForOp>(op)) {
        out << "for " << loop.getTrips() << " {";
        block(loop.getBody().front());
        out << '}';
      } else if (isa<ComputeOp, PollOp, CopyOp>(op)) {
        out << op.getAttr("callee") << op.getAttr("args");
      }
  };
  kernel.walk([&](RoleOp role) {
    out << stringifyRole(role.getRole());
    block(role.getBody().front());
  });
  return text;
}

Explainer::Explainer(KernelOp original)
    : original(original), source(sourceOf(original)),
      graph(std::make_unique<EventGraph>(original, INT64_MAX)) {
  if (std::string fault = graph->fault(); !fault.empty())
    llvm::report_fatal_error(
        ("the kernel itself: @" + original.getSymName() + ": " + fault).str().c_str());
  arrows = graph->arrows();
}

Explanation Explainer::explain(KernelOp mutant, const Mutation &mutation) {
  std::unique_ptr<EventGraph> largest;
  for (int64_t most : kCases) {
    auto graph = std::make_unique<EventGraph>(mutant, most);
    if (std::string fault = graph->fault(); !fault.empty())
      return {Reason::None, fault};
    if (!largest)
      largest = std::move(graph);
  }
  const bool isSame = arithmeticOf(mutant) == arithmeticOf(original);
  if (mutation.isFootprint) {
    if (sourceOf(mutant) != source)
      return {Reason::None, "what is emitted differs"};
    return {Reason::Footprint, ""};
  }
  if (!isSame)
    return {Reason::Arithmetic, ""};
  std::string by;
  for (const EventGraph::Arrow &arrow : arrows) {
    std::optional<std::string> way = largest->way(arrow.from, arrow.to);
    if (!way)
      return {Reason::Unneeded,
              "no accesses that meet need the order that @" + arrow.edge + " gave"};
    if (*way != '@' + arrow.edge && by.empty())
      by = *way;
  }
  return {Reason::Implied, by};
}
