// Stages that stream nothing: the embedding's rows and the routing.
#include "passes/task/Handoffs.h"
#include "passes/task/Lowering.h"

#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace megalith::task {

// The epilogue publishes this SM's share of the rows, in whole 32-byte sectors.
LogicalResult KernelLowering::lowerEmbed(StageOp stage) {
  auto read = cast<AccessAttr>(stage.getReads()[0]);
  auto write = cast<AccessAttr>(stage.getWrites()[0]);
  StringRef table = read.getBuffer().getValue(), out = write.getBuffer().getValue();
  int64_t sms = kernel.getSms();
  if (!exchange(out))
    return stage.emitOpError() << "expected to write an exchange";
  set(stage, "base", "Embedding<" + table + ", " + Twine(*configInt(stage, "hidden")) + ">");
  int64_t hidden = exchange(out).shareCols();
  stage.removeSmsAttr();                                // the share is that of all SMs
  bool isNormed = configString(stage, "norm") == "rms"; // then words are fp32
  int64_t perWord = isNormed ? 1 : 2;
  int64_t share = perWord * llvm::alignTo(llvm::divideCeil(hidden / perWord, sms), 8);
  SmallVector<AffineExpr> cols = {c(share)};
  if (share * sms != hidden)
    cols.push_back(c(hidden) - d(0) * share);
  Steps epilogue(stage, Role::Epilogue);
  requireLaunchWait(stage, Role::Epilogue, epilogue);
  std::string callee = (stage.getSymName() + ", " + out + "_words").str();
  callee = isNormed ? "publish_normed_embedding<" + callee + ", " +
                          floatText(*configFloat(stage, "eps")) + ">"
                    : "publish_embedding<" + callee + ">";
  epilogue.compute(callee, {}, {whole(table)},
                   {rectangle(out, {c(0), d(0) * share}, write.getRows(), cols)});
  if (kernel.isLooping())
    Steps(stage, Role::Consumer).wait(names::kLaunched);
  return success();
}

// What every role leaves when it is over with a launch of a looping kernel, so that the epilogue,
// which has the longest until it is needed again, can say so for the SM.
void KernelLowering::lowerLaunchEnd(StageOp stage) {
  if (!kernel.isLooping())
    return lowerRanksEnd(stage);
  Steps(stage, Role::Producer).signal(names::kProducerOver);
  Steps consumer(stage, Role::Consumer), poller(stage, Role::Poller);
  if (isAliased()) { // before the next launch's projections overwrite the rows
    consumer.signal(names::kDenseDone);
    poller.wait(names::kDenseDone);
  }
  consumer.signal(names::kConsumerOver);
  poller.signal(names::kPollerOver);
  Steps epilogue(stage, Role::Epilogue);
  for (StringRef role : {names::kProducerOver, names::kPollerOver, names::kConsumerOver})
    epilogue.wait(role);
  LaunchDoneOp::create(epilogue.builder(), stage.getLoc(), ref(names::kComplete));
}

static StringRef expertWeights(StageOp stage) {
  bool isRenormalised = stage.getConfig().getAs<BoolAttr>("renormalize").getValue();
  StringRef score = configString(stage, "score");
  if (score == "sigmoid")
    return isRenormalised ? "sigmoid_renormalised" : "sigmoid";
  // Over the selected, or renormalised to them: the sum over all experts cancels.
  return score == "softmax_selected" || isRenormalised ? "softmax_renormalised" : "softmax";
}

/// Whether the logits have bytes of the activation rows, which some warps may still read.
static bool areLogitsOverRows(KernelOp kernel) {
  auto offsetOf = [&](StringRef name) {
    auto buffer = kernel.lookup<BufferOp>(FlatSymbolRefAttr::get(kernel.getContext(), name));
    return buffer ? buffer.getOffset() : std::nullopt;
  };
  return offsetOf(names::kLogits) && offsetOf(names::kLogits) == offsetOf(names::kInput);
}

LogicalResult KernelLowering::lowerTopK(StageOp stage) {
  auto logits = cast<AccessAttr>(stage.getReads()[0]);
  StringRef source = logits.getBuffer().getValue(), name = stage.getSymName();
  StringRef weights = expertWeights(stage);
  if (!exchange(source))
    return stage.emitOpError() << "expected to read the logits from an exchange";
  auto buffer = [&](StringRef key) {
    FlatSymbolRefAttr symbol = configSymbol(stage, key);
    return symbol ? symbol.getValue() : StringRef("-1");
  };
  std::optional<double> scale = configFloat(stage, "scale"),
                        eps = configFloat(stage, "renormalize_eps");
  std::string base;
  llvm::raw_string_ostream(base) << "TopK<Config, " << *configInt(stage, "experts") << ", "
                                 << *configInt(stage, "k") << ", ExpertWeights::" << weights << ", "
                                 << (scale ? floatText(*scale) : "1.0f") << ", " << buffer("bias")
                                 << ", " << buffer("routing_in") << ", " << buffer("routing_out")
                                 << ", 0" << (eps ? ", " + floatText(*eps) : "") << ">";
  set(stage, "base", base);
  setSymbol(stage, "Logits", names::kLogits);
  setSymbol(stage, "Routing", names::kRouting);
  const bool byPoller = pollerRoutes(kernel);
  if (byPoller)
    setSymbol(stage, "Weights", names::kWeights);

  Steps poller(stage, Role::Poller);
  bool isByLaunch = rowsComeByLaunch(kernel);
  if (isByLaunch) {
    pollRows(poller, logits, names::kLogits, "logits_full", whole(names::kLogits));
    poller.signal("logits_full");
  }
  if (auto next = dyn_cast_or_null<StageOp>(stage->getNextNode());
      next && loadsBehind(next, stage)) {
    next.setSms(kernel.getSms()); // routing is on all of them
    loadRows(next, stage);
  }

  // Every role waits here, where all SMs are, though the experts may have slices on fewer; the
  // consumers, where the poller routes, when they have their rows.
  Steps(stage, Role::Producer).wait("routed");
  if (!byPoller)
    poller.wait("routed");
  Steps(stage, Role::Epilogue).wait("routed");

  const Role role = byPoller ? Role::Poller : Role::Consumer;
  Steps router(stage, role);
  SmallVector<StringRef> args;
  if (FlatSymbolRefAttr bias = configSymbol(stage, "bias")) {
    router.compute("load_bias<" + name + ">", {}, {whole(bias.getValue())}, {}, "const auto bias");
    args.push_back("bias");
  }
  if (isByLaunch) {
    router.wait("logits_full");
  } else {
    requireLaunchWait(stage, role, router);
    if (areLogitsOverRows(kernel))
      router.refill(names::kLogits);
    router.poll("poll_own_row<" + source + "_words, " + names::kLogits + ">", {},
                (source + "_words").str(), logits, whole(names::kLogits));
  }
  const int64_t k = *configInt(stage, "k"), experts = *configInt(stage, "experts");
  FlatSymbolRefAttr record = configSymbol(stage, "routing_out");
  if (record)
    requireLaunchWait(stage, role, router);
  if (byPoller) { // the lists first: nobody waits for the weights yet
    SmallVector<AccessAttr> chosen = {whole(names::kRouting)}, weighed = {pairWeights()};
    if (record) { // RoutingRecord
      chosen.push_back(rectangle(record.getValue(), {c(0), c(0)}, 1, {c(2 * experts + k)}));
      weighed.push_back(rectangle(record.getValue(), {c(0), c(2 * experts + k)}, 1, {c(k)}));
    }
    router.compute("route_row<" + name + ">", args, {whole(names::kLogits)}, chosen);
    router.signal("routed");
    router.compute("weigh_row<" + name + ">", {}, {whole(names::kLogits), whole(names::kRouting)},
                   weighed);
    router.signal("weighed");
    return success();
  }
  // Of the table (codegen/device/router.cuh) the selection writes weights and ids, behind the lists
  // that are then made of them.
  const int64_t pairs = kernel.getRows() * k, active = std::min(pairs, experts);
  const int64_t lists = 2 + 2 * active + pairs;
  auto routing = kernel.lookup<BufferOp>(ref(names::kRouting));
  AccessAttr made = rectangle(names::kRouting, {c(0), c(0)}, 1, {c(lists)});
  AccessAttr chosen = rectangle(names::kRouting, {c(0), c(lists)}, 1, {c(routing.cols() - lists)});
  SmallVector<AccessAttr> written = {chosen};
  if (record)
    written.push_back(whole(record.getValue()));
  router.compute("select_experts<" + name + ">", args, {whole(names::kLogits)}, written);
  router.compute("group_experts<" + name + ">", {}, {chosen}, {made});
  router.signal("routed");
  return success();
}

} // namespace megalith::task
