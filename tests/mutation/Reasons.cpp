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

std::string mutation::withoutComments(llvm::StringRef source) {
  std::string code;
  while (!source.empty()) {
    auto [line, rest] = source.split('\n');
    if (llvm::StringRef kept = line.split("//").first.rtrim(); !kept.empty())
      code += kept.str() + '\n';
    source = rest;
  }
  return code;
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

//===----------------------------------------------------------------------===//
// Calls in another order
//===----------------------------------------------------------------------===//

/// Calls of a role in order, with the trips of the loops around each.
static std::vector<std::pair<Operation *, std::string>> callsOf(RoleOp role) {
  std::vector<std::pair<Operation *, std::string>> calls;
  role.walk([&](Operation *op) {
    if (!isa<ComputeOp, PollOp, CopyOp>(op))
      return;
    std::string loops;
    llvm::raw_string_ostream out(loops);
    for (Operation *at = op->getParentOp(); at != role; at = at->getParentOp())
      out << cast<ForOp>(at).getTrips() << at->getLoc() << ' ';
    calls.push_back({op, std::move(loops)});
  });
  return calls;
}

/// Variables that both calls may change, and places that one writes and both touch.
static bool haveInCommon(Operation *a, Operation *b) {
  if (a->hasAttr("ring") && b->hasAttr("ring"))
    return true;
  KernelOp kernel = a->getParentOfType<KernelOp>();
  auto placesOf = [](Operation *op, StringRef list) {
    SmallVector<FlatSymbolRefAttr> names;
    if (auto accesses = op->getAttrOfType<ArrayAttr>(list))
      for (auto access : accesses.getAsRange<AccessAttr>())
        names.push_back(access.getBuffer());
    return names;
  };
  auto meet = [&](FlatSymbolRefAttr x, FlatSymbolRefAttr y) {
    if (x == y)
      return true;
    auto p = kernel.lookup<BufferOp>(x), q = kernel.lookup<BufferOp>(y);
    return p && q && p.getOffset() && q.getOffset() &&
           *p.getOffset() < *q.getOffset() + q.byteSize() &&
           *q.getOffset() < *p.getOffset() + p.byteSize();
  };
  for (auto [writer, other] : {std::pair(a, b), std::pair(b, a)})
    for (auto written : placesOf(writer, "writes"))
      for (StringRef list : {"reads", "writes"})
        for (auto touched : placesOf(other, list))
          if (meet(written, touched))
            return true;
  // A variable of the role that is no constant is for both to change.
  bool isShared = false;
  a->getParentOfType<RoleOp>().walk([&](LocalOp local) {
    auto names = [&](Operation *op) {
      return llvm::any_of(
          op->getAttrOfType<ArrayAttr>("args").getAsRange<StringAttr>(), [&](StringAttr arg) {
            return arg.getValue().split('[').first == local.getName().split('[').first;
          });
    };
    isShared |= !local.getType().starts_with("const ") && names(a) && names(b);
  });
  return isShared;
}

/// What keeps the mutant's calls from giving the same values as the original's, or "".
static std::string conflictOf(KernelOp original, KernelOp mutant) {
  SmallVector<RoleOp> before, after;
  original.walk([&](RoleOp role) { before.push_back(role); });
  mutant.walk([&](RoleOp role) { after.push_back(role); });
  for (auto [was, is] : llvm::zip_equal(before, after)) {
    const auto old = callsOf(was), now = callsOf(is);
    llvm::DenseMap<Location, size_t> places;
    for (size_t i = 0; i < old.size(); ++i)
      places[old[i].first->getLoc()] = i;
    std::vector<size_t> order;
    for (const auto &[op, loops] : now) {
      auto place = places.find(op->getLoc());
      if (place == places.end() || old[place->second].second != loops ||
          old[place->second].first->getAttrDictionary() != op->getAttrDictionary())
        return "another call, or more turns";
      order.push_back(place->second);
    }
    if (old.size() != now.size())
      return "calls are missing or doubled";
    for (size_t i = 0; i < order.size(); ++i)
      for (size_t j = 0; j < i; ++j) {
        if (order[i] == order[j])
          return "a call is doubled";
        if (order[i] < order[j] && haveInCommon(old[order[i]].first, old[order[j]].first))
          return "calls changed places that do not commute";
      }
  }
  return "";
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
  if (!isSame) {
    std::string conflict = conflictOf(original, mutant);
    return {conflict.empty() ? Reason::Commutes : Reason::None, conflict};
  }
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
