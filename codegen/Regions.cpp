//===- Regions.cpp - A role's regions as one C++ function -------------------===//

#include "codegen/Regions.h"

#include "codegen/Declarations.h"
#include "codegen/Fused.h"
#include "codegen/Names.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace megalith::task;

namespace megalith {

//===----------------------------------------------------------------------===//
// Affine expressions
//===----------------------------------------------------------------------===//

namespace {
/// How tightly an expression's text binds: a product inside a product needs no brackets.
enum class Binds { Sum, Product, Atom };
} // namespace

static std::string affineText(AffineExpr expr, ArrayRef<std::string> dims, Binds needed);

/// The factor of `expr` if it is a constant or a product with one, else 1.
static int64_t factorOf(AffineExpr expr) {
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return constant.getValue();
  auto binary = dyn_cast<AffineBinaryOpExpr>(expr);
  if (binary && binary.getKind() == AffineExprKind::Mul)
    if (auto constant = dyn_cast<AffineConstantExpr>(binary.getRHS()))
      return constant.getValue();
  return 1;
}

static std::string sumText(AffineBinaryOpExpr sum, ArrayRef<std::string> dims) {
  AffineExpr left = sum.getLHS(), right = sum.getRHS();
  if (factorOf(left) < 0 && factorOf(right) >= 0)
    std::swap(left, right);
  const std::string first = affineText(left, dims, Binds::Sum);
  if (factorOf(right) < 0)
    return first + " - " + affineText(-right, dims, Binds::Product);
  return first + " + " + affineText(right, dims, Binds::Sum);
}

/// Whether `expr` can be below zero, where C++ rounds a quotient up and IR down. SMs and indices of
/// loops are not.
static bool mayBeNegative(AffineExpr expr) {
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return constant.getValue() < 0;
  auto binary = dyn_cast<AffineBinaryOpExpr>(expr);
  if (!binary || expr.getKind() == AffineExprKind::Mod)
    return false;
  return mayBeNegative(binary.getLHS()) || mayBeNegative(binary.getRHS());
}

/// The quotient, or the remainder, of `left` and a positive constant.
static std::string quotientText(AffineExpr left, char sign, AffineExpr right,
                                ArrayRef<std::string> dims) {
  const std::string by = affineText(right, dims, Binds::Atom);
  if (!mayBeNegative(left))
    return affineText(left, dims, Binds::Product) + " " + sign + " " + by;
  return std::string(sign == '/' ? "floor_div" : "floor_mod") + "(" +
         affineText(left, dims, Binds::Sum) + ", " + by + ")";
}

static std::string affineText(AffineExpr expr, ArrayRef<std::string> dims, Binds needed) {
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return std::to_string(constant.getValue());
  if (auto dim = dyn_cast<AffineDimExpr>(expr))
    return dims[dim.getPosition()];
  auto binary = cast<AffineBinaryOpExpr>(expr);
  std::string text;
  Binds binds = Binds::Product;
  switch (expr.getKind()) {
  case AffineExprKind::Add:
    text = sumText(binary, dims);
    binds = Binds::Sum;
    break;
  case AffineExprKind::Mul:
    text = affineText(binary.getLHS(), dims, Binds::Product) + " * " +
           affineText(binary.getRHS(), dims, Binds::Atom);
    break;
  case AffineExprKind::FloorDiv:
    text = quotientText(binary.getLHS(), '/', binary.getRHS(), dims);
    break;
  case AffineExprKind::CeilDiv:
    text = quotientText(binary.getLHS() + binary.getRHS() - 1, '/', binary.getRHS(), dims);
    break;
  case AffineExprKind::Mod:
    text = quotientText(binary.getLHS(), '%', binary.getRHS(), dims);
    break;
  default:
    llvm_unreachable("maps of role regions have dimensions only");
  }
  return binds < needed ? "(" + text + ")" : text;
}

std::string affineText(AffineExpr expr, ArrayRef<std::string> dims) {
  return affineText(expr, dims, Binds::Sum);
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

namespace {

/// Prints the steps of one role, stage after stage.
class RolePrinter {
public:
  RolePrinter(KernelOp kernel, Role role, Writer &out)
      : kernel(kernel), who(role), isTraced(kernel.getTrace()), out(out), dims{"cta.sm"} {}

  LogicalResult stage(StageOp op, RoleOp role) {
    currentStage = op;
    out.comment(op.getSymName());
    const bool isGuarded = op.getSms().value_or(kernel.getSms()) < kernel.getSms();
    const bool isBraced = isGuarded || llvm::any_of(role.getBody().front(), declaresName);
    if (isGuarded)
      out.open("if (cta.sm < " + Twine(*op.getSms()) + ") {");
    else if (isBraced)
      out.open("{");
    if (kernel.isLooping())
      out.line("cta.begin_stage();");
    LogicalResult result = steps(role.getBody().front());
    if (isTraced)
      out.line(stageCall() + "<" + op.getSymName() + ">(cta);");
    if (isBraced)
      out.close("}");
    return result;
  }

private:
  /// Whether a step's text declares a name in the scope around it: stages that do have a scope of
  /// their own, so that all may use the same names.
  static bool declaresName(Operation &op) {
    if (auto loop = dyn_cast<ForOp>(op))
      return loop.getIterate().has_value();
    return isa<LocalOp>(op) || op.getAttrOfType<StringAttr>("result");
  }

  /// What records the end of a stage.
  StringRef stageCall() const {
    return who == Role::Consumer   ? "trace_consumer"
           : who == Role::Epilogue ? "trace_epilogue"
                                   : "trace_stage";
  }

  /// Whether recording notes, before the step, that what is handed over is computed.
  bool endsProduct(Operation *op) {
    if (!isTraced || who != Role::Consumer)
      return false;
    if (auto acquire = dyn_cast<AcquireOp>(op))
      return !isStream(kernel, acquire.getEdge());
    auto compute = dyn_cast<ComputeOp>(op);
    return compute &&
           llvm::any_of(compute.getWrites().getAsRange<AccessAttr>(), [&](AccessAttr write) {
             return kernel.lookup<ExchangeOp>(write.getBuffer()) != nullptr;
           });
  }

  /// Whether recording takes the step's time.
  bool isTimedPoll(Operation *op) {
    return isTraced && who == Role::Consumer && isa_and_nonnull<PollOp>(op);
  }

  /// Whether there is another poll before or behind one, and only declarations in between: all of
  /// them are timed as one.
  bool goesOn(Operation *poll, Operation *(Operation::*next)()) {
    Operation *op = (poll->*next)();
    while (op && isa<LocalOp>(op) && !cast<LocalOp>(op).getInit())
      op = (op->*next)();
    return isTimedPoll(op);
  }

  StringRef waitVerb(WaitOp op) {
    if (!isTraced || (who != Role::Consumer && who != Role::Epilogue))
      return "wait";
    return isStream(kernel, op.getEdge()) ? "timed_piece" : "timed_wait";
  }

  LogicalResult steps(Block &block) {
    for (auto op = block.begin(); op != block.end();) {
      if (const Fused fused = fusedAt(op, block.end());
          fused.steps > 0 && (fuses() || fused.records)) {
        out.line((fused.result.empty() ? "" : fused.result + " = ") + fused.text + ";");
        for (size_t i = 0; i < fused.steps; ++i, ++op)
          if (auto compute = dyn_cast<ComputeOp>(*op); compute && failed(expectEdges(compute)))
            return failure();
      } else if (failed(step(&*op++))) {
        return failure();
      }
    }
    return success();
  }

  /// Whether steps may be printed as one call that does not record what its wait takes.
  bool fuses() { return !isTraced || who == Role::Producer; }

  LogicalResult step(Operation *op) {
    if (endsProduct(op) && !isTimedPoll(op->getPrevNode()))
      out.line("trace_product(cta);");
    if (!isTimedPoll(op))
      return print(op);
    if (!goesOn(op, &Operation::getPrevNode))
      out.line("trace_poll(cta);");
    LogicalResult result = print(op);
    Operation *next = op->getNextNode();
    if (next && endsProduct(next))
      out.line("trace_polled_product(cta);");
    else if (!goesOn(op, &Operation::getNextNode))
      out.line("trace_polled(cta);");
    return result;
  }

  LogicalResult print(Operation *op) {
    return llvm::TypeSwitch<Operation *, LogicalResult>(op)
        .Case([&](ForOp op) { return loop(op); })
        .Case([&](WaitOp op) { return edge(waitVerb(op), op.getEdge(), op.getResult()); })
        .Case([&](AcquireOp op) { return edge("acquire", op.getEdge(), op.getResult()); })
        .Case([&](PeekOp op) { return edge("peek", op.getEdge()); })
        .Case([&](SignalOp op) { return edge("signal", op.getEdge()); })
        .Case([&](ReleaseOp op) { return edge("release", op.getEdge()); })
        .Case([&](CopyOp op) { return copy(op); })
        .Case([&](PaceOp op) {
          out.line("pace<" + op.getEdge() + ", " + Twine(op.getWindow()) + ">(cta);");
          return success();
        })
        .Case([&](RefillOp op) {
          out.line("refill<" + op.getBuffer() + ">(cta);");
          return success();
        })
        .Case([&](PollOp op) { return poll(op); })
        .Case([&](ComputeOp op) { return compute(op); })
        .Case([&](LocalOp op) {
          const std::string init = op.getInit() ? " = " + op.getInit()->str() : "";
          out.line(op.getType() + " " + op.getName() + init + ";");
          return success();
        })
        .Case([&](RearmOp op) {
          out.line("rearm<" + op.getExchange() + ">(cta);");
          return success();
        })
        .Case([&](LaunchWaitOp op) {
          out.line(op.getEdge() ? "await_launch<" + *op.getEdge() + ">(cta);"
                                : Twine("launch_wait();"));
          return success();
        })
        .Case([&](LaunchDoneOp op) {
          out.line("finish_launch<" + op.getEdge() + ">(cta);");
          return success();
        })
        .Case([&](LaunchDependentsOp) {
          out.line("launch_dependents();");
          return success();
        })
        .Default([](Operation *op) { return op->emitOpError() << "has no form in C++"; });
  }

  /// `result = `, or nothing.
  static std::string assigned(std::optional<StringRef> result) {
    return result ? result->str() + " = " : "";
  }

  LogicalResult edge(StringRef verb, StringRef name, std::optional<StringRef> result = {}) {
    out.line(assigned(result) + verb + "<" + name + ">(cta);");
    return success();
  }

  /// `index < bound` for each bound of the trips from number `first` on.
  std::string conditionOf(ForOp op, size_t first = 0) {
    const std::string lead = (op.getIndex() + " < ").str();
    if (SymbolOp symbol = symbolOf(op))
      return lead + (symbol.getAfter() ? keptSymbol(op) : symbol.getExpr().str());
    std::string condition;
    llvm::interleave(
        op.getTrips().getMap().getValue().getResults().drop_front(first),
        [&](AffineExpr expr) { condition += lead + affineText(expr, dims); },
        [&] { condition += " && "; });
    return condition;
  }

  /// The symbol that says how many trips a loop makes, if one does.
  SymbolOp symbolOf(ForOp op) {
    FlatSymbolRefAttr name = op.getTrips().getSymbol();
    return name ? kernel.lookup<SymbolOp>(name) : SymbolOp();
  }

  /// What an edge brings lies in shared memory: a local keeps it while the loop runs. A look would
  /// hold up each trip, and most trips through a step's experts do nothing else.
  static std::string keptSymbol(ForOp op) { return (op.getIndex() + "_end").str(); }
  std::string startOf(ForOp op) {
    const std::string start = (op.getIndex() + " = 0").str();
    SymbolOp symbol = symbolOf(op);
    return symbol && symbol.getAfter()
               ? start + ", " + keptSymbol(op) + " = " + symbol.getExpr().str()
               : start;
  }

  // Loops stay rolled: a role's code runs about once a launch, so what unrolling would save it
  // loses in the instruction cache, which all roles of an SM share.
  bool isRolled(Operation &op) {
    auto loop = dyn_cast<ForOp>(op);
    if (!loop || !fusedLoop(loop).empty())
      return false;
    if (loop->hasAttr("unrolled") || loop->hasAttr("dealt")) // their own braces
      return true;
    AffineMapAttr trips = loop.getTrips().getMap();
    bool isSingle = trips && llvm::is_contained(trips.getValue().getResults(),
                                                getAffineConstantExpr(1, op.getContext()));
    return !isSingle || loop.getIterate();
  }

  // A loop whose index chooses among registers: unrolled whole, up to the first, constant bound;
  // what the others leave out is skipped.
  LogicalResult unrolledLoop(ForOp op) {
    const std::string index = op.getIndex().str();
    ArrayRef<AffineExpr> bounds = op.getTrips().getMap().getValue().getResults();
    out.line("MEGALITH_UNROLL_ALL");
    out.open("for (int " + index + " = 0; " + index + " < " + affineText(bounds.front(), dims) +
             "; ++" + index + ") {");
    dims.push_back(index);
    const bool isGuarded = bounds.size() > 1;
    if (isGuarded)
      out.open("if (" + conditionOf(op, /*first=*/1) + ") {");
    LogicalResult result = steps(op.getBody().front());
    if (isGuarded)
      out.close("}");
    dims.pop_back();
    out.close("}");
    return result;
  }

  /// The trips of the inner of two loops over dealt units: of `units` a step's expert has, SM d(0)
  /// has those numbers of all units that leave d(0) when divided by the number of SMs.
  AffineExpr dealtTrips(int64_t units) {
    MLIRContext *context = kernel.getContext();
    const int64_t sms = kernel.getSms();
    AffineExpr behind = (getAffineDimExpr(0, context) * (sms - 1) +
                         getAffineDimExpr(1, context) * (units % sms) + (sms - 1)) %
                        sms;
    return (behind + units).floorDiv(sms);
  }

  // Loops over experts and the units that this SM has of each, as one: most experts have none.
  LogicalResult dealtLoop(ForOp op, int64_t units) {
    Block &body = op.getBody().front();
    auto inner = dyn_cast<ForOp>(body.front());
    SymbolOp active = symbolOf(op);
    if (units < 1 || !active || !inner || !llvm::hasSingleElement(body) || dims.size() != 1)
      return op.emitOpError() << "expected to be the outer of two loops, over a symbol's experts "
                                 "and over at least one dealt unit of each";
    AffineMapAttr trips = inner.getTrips().getMap();
    if (!trips || trips.getValue().getNumResults() != 1 ||
        trips.getValue().getResult(0) != dealtTrips(units))
      return inner.emitOpError() << "expected an SM's share of " << units
                                 << " units dealt out among " << kernel.getSms() << " SMs";
    const std::string unit = inner.getIndex().str();
    out.line("MEGALITH_UNROLL(1)");
    out.open("for (DealtUnit<" + currentStage.getSymName() + ", " + Twine(units) + ", Cta> " +
             unit + "(cta, " + active.getExpr() + "); " + unit + ".is_there(); " + unit +
             ".next()) {");
    dims.push_back(unit + ".entry()");
    dims.push_back(unit + ".number()");
    LogicalResult result = steps(inner.getBody().front());
    dims.pop_back_n(2);
    out.close("}");
    return result;
  }

  LogicalResult loop(ForOp op) {
    if (op->hasAttr("unrolled"))
      return unrolledLoop(op);
    if (auto units = op->getAttrOfType<IntegerAttr>("dealt"))
      return dealtLoop(op, units.getInt());
    if (const std::string text = fusedLoop(op); !text.empty()) {
      out.line(text + ";");
      return success();
    }
    const std::string index = op.getIndex().str();
    std::string head;
    if (auto range = op.getIterate()) {
      out.line(*range + " " + index + "_list(*cta.args.step, cta.sm);");
      head = ("for (" + *range + "::Tile " + index + "; " + index + "_list.next(" + index + ");)")
                 .str();
    } else if (FlatSymbolRefAttr symbol = op.getTrips().getSymbol();
               symbol && !kernel.lookup<SymbolOp>(symbol)) {
      return op.emitOpError() << "expected " << symbol << " to be a symbol of this kernel";
    } else {
      head = "for (int " + startOf(op) + "; " + conditionOf(op) + "; ++" + index + ")";
    }
    Block &body = op.getBody().front();
    // One step is one statement, except a loop over tiles, which declares their list before it.
    const bool isBraced = !llvm::hasSingleElement(body) || declaresName(body.front()) ||
                          isRolled(body.front()) || endsProduct(&body.front()) ||
                          isTimedPoll(&body.front());
    if (isRolled(*op))
      out.line("MEGALITH_UNROLL(1)");
    out.open(head + (isBraced ? " {" : ""));
    dims.push_back(index);
    LogicalResult result = steps(body);
    dims.pop_back();
    if (isBraced)
      out.close("}");
    else
      out.dedent();
    return result;
  }

  /// `callee` as it stands, or with these template arguments if it brings none and is no whole
  /// call.
  static std::string withTemplate(StringRef callee, ArrayRef<StringRef> arguments) {
    if (callee.contains('<') || callee.ends_with(")"))
      return callee.str();
    return (callee + "<" + llvm::join(arguments, ", ") + ">").str();
  }

  void call(StringRef target, ArrayAttr args, std::optional<StringRef> result = {}) {
    if (target.ends_with(")")) {
      out.line(assigned(result) + target + ";");
      return;
    }
    std::string text = assigned(result) + target.str() + "(cta";
    for (auto argument : args.getAsRange<StringAttr>())
      text += (", " + argument.getValue()).str();
    out.line(text + ");");
  }

  /// Readers and the lint find waits and signals by their edge's name, so a call that is one must
  /// have it among its template arguments.
  LogicalResult expectNamed(Operation *op, StringRef target, StringRef name) {
    if (mentions(target, name))
      return success();
    return op->emitOpError() << "expected the callee's template arguments to name the edge " << name
                             << ", but got " << target;
  }

  LogicalResult copy(CopyOp op) {
    const std::string target =
        withTemplate(op.getCallee(), {op.getEdge(), op.getRing(), currentStage.getSymName()});
    call(target, op.getArgs());
    return expectNamed(op, target, op.getEdge());
  }

  LogicalResult poll(PollOp op) {
    const std::string target =
        withTemplate(op.getCallee(), {op.getEdge(), currentStage.getSymName()});
    call(target, op.getArgs());
    for (FlatSymbolRefAttr edge : op.edges())
      if (failed(expectNamed(op, target, edge.getValue())))
        return failure();
    return success();
  }

  LogicalResult compute(ComputeOp op) {
    call(targetOf(op), op.getArgs(), op.getResult());
    return expectEdges(op);
  }

  std::string targetOf(ComputeOp op) {
    return withTemplate(op.getCallee(), {currentStage.getSymName()});
  }

  /// That a call which publishes names its edges.
  LogicalResult expectEdges(ComputeOp op) {
    for (auto write : op.getWrites().getAsRange<AccessAttr>())
      if (auto exchange = kernel.lookup<ExchangeOp>(write.getBuffer()))
        if (failed(expectNamed(op, targetOf(op), exchange.getEdge())))
          return failure();
    return success();
  }

  KernelOp kernel;
  Role who;
  bool isTraced;
  Writer &out;
  StageOp currentStage;
  /// C++ of the dimensions of affine maps: the SM, then the loops around, outermost first.
  SmallVector<std::string> dims;
};

} // namespace

/// The launches in which a stage of a looping kernel runs, as a condition; empty: all.
static std::string launchesOf(StageOp stage) {
  if (!stage.getDuring())
    return "";
  const int64_t first = (*stage.getDuring())[0], end = (*stage.getDuring())[1];
  const bool toTheEnd = end == stage->getParentOfType<KernelOp>().getLaunches();
  if (end == first + 1)
    return "cta.launch == " + std::to_string(first);
  std::string text = first == 0 ? "" : "cta.launch >= " + std::to_string(first);
  if (!toTheEnd)
    text += (text.empty() ? "cta.launch < " : " && cta.launch < ") + std::to_string(end);
  return text;
}

LogicalResult emitRole(KernelOp kernel, Role role, Writer &out) {
  RolePrinter printer(kernel, role, out);
  SmallVector<std::pair<StageOp, RoleOp>> regions;
  for (auto stage : kernel.getOps<StageOp>())
    if (RoleOp region = stage.role(role); region && !region.getBody().front().empty())
      regions.emplace_back(stage, region);
  if (regions.empty()) {
    out.line(("MEGALITH_DEVICE void " + stringifyRole(role) + "(Cta &) {}").str());
    return success();
  }
  out.open(("MEGALITH_DEVICE void " + stringifyRole(role) + "(Cta &cta) {").str());
  if (kernel.isLooping()) {
    out.line("MEGALITH_UNROLL(1)");
    out.open("for (; cta.launch < cta.end; cta.next_launch()) {");
  }
  std::string during; // the condition around the stage before
  for (auto [stage, region] : regions) {
    std::string condition = launchesOf(stage);
    if (condition != during && !during.empty())
      out.close("}");
    if (condition != during && !condition.empty())
      out.open("if (" + condition + ") {");
    during = condition;
    if (failed(printer.stage(stage, region)))
      return failure();
  }
  if (!during.empty())
    out.close("}");
  if (kernel.isLooping())
    out.close("}");
  out.close("}");
  return success();
}

} // namespace megalith
