//===- Facts.cpp - what is known of a compiled plan -------------------------===//

#include "tools/explain/Facts.h"

#include "ir/task/Task.h"
#include "passes/task/Handoffs.h"
#include "passes/task/Stages.h"
#include "tools/explain/Costs.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FormatVariadic.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace mlir;
using namespace megalith::task;

namespace megalith::explain {

double expectedExperts(int64_t experts, int64_t topK, int64_t rows) {
  const double missed = 1.0 - double(topK) / double(experts);
  return double(experts) * (1.0 - std::pow(missed, double(rows)));
}

int64_t instructionCacheBytes(StringRef target) {
  return target.starts_with("sm_90") ? 128 << 10 : 0;
}

double KernelFacts::bytes() const {
  double sum = 0;
  for (const StageFacts &stage : stages)
    sum += stage.bytes;
  return sum;
}

static double sumOf(const std::vector<StageFacts> &stages,
                    std::optional<Estimate> StageFacts::*member) {
  double sum = 0;
  for (const StageFacts &stage : stages)
    if (stage.*member)
      sum += (stage.*member)->us;
  return sum;
}

double KernelFacts::floor() const {
  return sumOf(stages, &StageFacts::floor);
}

double KernelFacts::windowed() const {
  return sumOf(stages, &StageFacts::windowed);
}

/// Whether a stage's workers cannot begin without it.
static bool isInChain(const ExchangeFacts &exchange, const StageFacts &stage) {
  return llvm::any_of(exchange.readers, [&](const Endpoint &reader) {
    return reader.stage == stage.name && reader.role != "epilogue" && !reader.pieces;
  });
}

/// The dearest exchange that each stage begins with.
template <class Add> static void eachHop(const KernelFacts &kernel, Add add) {
  for (const StageFacts &stage : kernel.stages) {
    const ExchangeFacts *dearest = nullptr;
    for (const ExchangeFacts &exchange : kernel.exchanges)
      if (isInChain(exchange, stage) &&
          (!dearest || (exchange.hop && (!dearest->hop || exchange.hop->us > dearest->hop->us))))
        dearest = &exchange;
    if (dearest)
      add(*dearest);
  }
}

double KernelFacts::hops() const {
  double sum = 0;
  eachHop(*this,
          [&](const ExchangeFacts &exchange) { sum += exchange.hop ? exchange.hop->us : 0; });
  return sum;
}

int64_t KernelFacts::chain() const {
  int64_t count = 0;
  eachHop(*this, [&](const ExchangeFacts &) { ++count; });
  return count;
}

namespace {

/// bf16, FP32 and so on as people write them.
std::string textOf(Type type) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  type.print(stream);
  return text;
}

class Gatherer {
public:
  Gatherer(const runtime::Plan &plan, const costs::CostTable *table, const Step &step)
      : plan(plan), costs(table), step(step) {
    facts.plan = plan;
    facts.step = step;
    if (table)
      facts.device = table->device;
  }

  Facts gather(ModuleOp module) {
    const SmallVector<KernelOp> all(module.getOps<KernelOp>());
    for (KernelOp kernel : all)
      findExperts(kernel);
    for (KernelOp kernel : all)
      addKernel(kernel);
    // What one launch writes another may read, so ends are looked for in all kernels.
    for (KernelFacts &kernel : facts.kernels)
      for (ExchangeFacts &exchange : kernel.exchanges)
        for (KernelOp other : all)
          addWriters(other, kernel.name, exchange);
    return std::move(facts);
  }

private:
  void findExperts(KernelOp kernel) {
    for (auto stage : kernel.getOps<StageOp>())
      if (stage.getKind() == StageKind::ExpertUp)
        facts.experts = step.experts > 0
                            ? step.experts
                            : expectedExperts(*configInt(stage, "experts"),
                                              *configInt(stage, "top_k"), kernel.getRows());
  }

  void addKernel(KernelOp kernel) {
    KernelFacts out;
    out.name = kernel.getSymName().str();
    out.kind = kernel.getKind().str();
    out.smemBytes = kernel.getSmemBytes().value_or(0);
    out.residents = kernel.getResidents();
    out.why = reasonsOf(kernel);
    if (const runtime::Kernel *known = plan.kernel(out.name)) {
      out.threads = known->threads;
      out.resources = known->resources;
    }
    out.launches = llvm::count_if(
        plan.launches, [&](const runtime::Launch &launch) { return launch.kernel == out.name; });
    for (auto stage : kernel.getOps<StageOp>())
      out.stages.push_back(stageFacts(stage));
    for (EdgeOp edge : kernel.edges())
      out.edges.push_back(edgeFacts(kernel, edge));
    for (auto exchange : kernel.getOps<ExchangeOp>())
      out.exchanges.push_back(exchangeFacts(kernel, exchange, out));
    addMemory(kernel, out);
    facts.kernels.push_back(std::move(out));
  }

  //===--------------------------------------------------------------------===//
  // Stages
  //===--------------------------------------------------------------------===//

  StageFacts stageFacts(StageOp stage) {
    StageFacts out;
    out.name = stage.getSymName().str();
    out.kind = stringifyStageKind(stage.getKind()).str();
    out.source = stage.getSource().value_or("").str();
    out.sms = smsOf(stage);
    out.tiles = stage.getTiles();
    if (auto during = stage.getDuring()) {
      out.first = (*during)[0];
      out.end = (*during)[1];
    }
    if (auto depends = stage->getAttrOfType<ArrayAttr>(kDepends))
      for (auto name : depends.getAsRange<FlatSymbolRefAttr>())
        out.depends.push_back(name.getValue().str());
    llvm::StringSet<> seen;
    auto add = [&](StringRef edge) {
      if (seen.insert(edge).second)
        out.edges.push_back(edge.str());
    };
    stage.walk([&](Operation *op) {
      if (auto poll = dyn_cast<PollOp>(op))
        for (FlatSymbolRefAttr edge : poll.edges())
          add(edge.getValue());
      if (auto wait = dyn_cast<WaitOp>(op))
        add(wait.getEdge());
      if (auto acquire = dyn_cast<AcquireOp>(op))
        add(acquire.getEdge());
    });
    addBytes(stage, out);
    out.why = reasonsOf(stage);
    return out;
  }

  void addBytes(StageOp stage, StageFacts &out) {
    auto kernel = stage->getParentOfType<KernelOp>();
    const auto rows = double(kernel.getRows());
    double share = 0;
    if (auto stream = stage->getAttrOfType<DictionaryAttr>(kStream)) {
      auto number = [&](StringRef key) {
        auto value = stream.getAs<IntegerAttr>(key);
        return value ? value.getInt() : 0;
      };
      out.piece = number("piece");
      out.window = number("window");
      share = double(number("bytes"));
    }
    if (isGemv(stage)) {
      WeightsOp weights = weightsOf(stage);
      const bool isBank = weights.getExperts() > 1;
      const double times = isBank ? facts.experts : 1;
      // 16 NVFP4 values are 8 bytes and a scale.
      const double valueBytes = weights.getNvfp4() ? 9.0 / 16 : 2;
      out.bytes = double(weights.getN()) * double(weights.getK()) * valueBytes * times;
      out.smBytes = share * times;
      out.bytesOf =
          isBank
              ? llvm::formatv("weights of {0:f1} of {1} experts", times, weights.getExperts()).str()
              : "weights";
    } else if (stage.getKind() == StageKind::Attention) {
      // K and V of positions below the new ones.
      out.bytes = rows * double(step.context) * double(*configInt(stage, "kv_heads")) *
                  double(task::unitBytesOf(stage)) / 16;
      out.bytesOf = "keys and values";
    } else if (stage.getKind() == StageKind::Embed) {
      out.bytes = rows * double(*configInt(stage, "hidden")) * 2;
      out.bytesOf = "rows of the embedding";
    }
    out.floor = costs.read(out.bytes);
    if (out.piece)
      out.windowed = costs.read(out.bytes, out.piece, out.window, out.sms);
  }

  //===--------------------------------------------------------------------===//
  // Exchanges and edges
  //===--------------------------------------------------------------------===//

  static int64_t largest(AccessAttr access) {
    int64_t cols = std::numeric_limits<int64_t>::max();
    for (AffineExpr result : access.getCols().getValue().getResults())
      if (auto constant = dyn_cast<AffineConstantExpr>(result))
        cols = std::min(cols, constant.getValue());
    return cols == std::numeric_limits<int64_t>::max() ? 0 : cols * access.getRows();
  }

  ExchangeFacts exchangeFacts(KernelOp kernel, ExchangeOp exchange, const KernelFacts &owner) {
    ExchangeFacts out;
    out.name = exchange.getSymName().str();
    out.edge = exchange.getEdge().str();
    out.element = textOf(exchange.getElement());
    out.word = stringifyWordKind(exchange.getWord()).str();
    out.rows = exchange.rows();
    out.cols = exchange.cols();
    out.sets = exchange.getSets();
    out.peers = exchange.getPeers();
    out.setBytes = exchange.byteSize() / exchange.getSets();
    out.why = reasonsOf(exchange);
    if (auto edge = kernel.lookup<EdgeOp>(exchange.getEdgeAttr()))
      for (Reason &reason : reasonsOf(edge))
        out.why.push_back(std::move(reason));
    for (auto stage : kernel.getOps<StageOp>())
      addReaders(stage, exchange, owner, out);
    return out;
  }

  void addReaders(StageOp stage, ExchangeOp exchange, const KernelFacts &owner,
                  ExchangeFacts &out) {
    const bool isF32 = exchange.getElement().isF32();
    stage.walk([&](PollOp poll) {
      for (auto read : poll.getReads().getAsRange<AccessAttr>()) {
        if (read.getBuffer().getValue() != exchange.getSymName())
          continue;
        Endpoint reader{owner.name, stage.getSymName().str(), roleOf(poll),
                        read.getSet() == task::Set::Previous};
        for (auto loop = poll->getParentOfType<ForOp>(); loop;
             loop = loop->getParentOfType<ForOp>())
          reader.pieces |= loop.getTrips().getSymbol() && !loop.getIterate();
        // Rows of partial results are as many as the step has pieces.
        const int64_t bytes = std::min(largest(read) * (isF32 ? 4 : 2), out.setBytes);
        out.pollBytes = std::max(out.pollBytes, bytes);
        if (!llvm::is_contained(out.readers, reader))
          out.readers.push_back(reader);
        if (reader.role == "epilogue" || out.peers)
          continue;
        const StageFacts &about = *llvm::find_if(
            owner.stages, [&](const StageFacts &s) { return s.name == reader.stage; });
        std::optional<Estimate> hop =
            stage.getKind() == StageKind::TopK ? costs.logits()
            : stage.getKind() == StageKind::Merge
                ? costs.merge()
                : costs.hop(bytes, about.piece * about.window, reader.role == "consumer");
        if (hop && (!out.hop || hop->us > out.hop->us))
          out.hop = hop;
      }
    });
  }

  static std::string roleOf(Operation *op) {
    return stringifyRole(op->getParentOfType<RoleOp>().getRole()).str();
  }

  /// Stages that store the exchange, of the kernel itself or, for what crosses launches, of others.
  static void addWriters(KernelOp kernel, StringRef reader, ExchangeFacts &exchange) {
    const bool isOther = kernel.getSymName() != reader;
    if (isOther && llvm::none_of(exchange.readers, [](const Endpoint &e) { return e.previous; }) &&
        exchange.word != "plain" && exchange.word != "triple")
      return;
    for (auto stage : kernel.getOps<StageOp>()) {
      auto add = [&](Operation *op, ArrayAttr writes) {
        for (auto write : writes.getAsRange<AccessAttr>())
          if (write.getBuffer().getValue() == exchange.name) {
            Endpoint writer{kernel.getSymName().str(), stage.getSymName().str(), roleOf(op)};
            if (!llvm::is_contained(exchange.writers, writer))
              exchange.writers.push_back(writer);
          }
      };
      stage.walk([&](ComputeOp op) { add(op, op.getWrites()); });
      stage.walk([&](PollOp op) { add(op, op.getWrites()); });
    }
  }

  EdgeFacts edgeFacts(KernelOp kernel, EdgeOp edge) {
    EdgeFacts out;
    out.id = edge.getId();
    out.name = edge.getSymName().str();
    out.kind = stringifyEdgeKind(edge.getKind()).str();
    out.from = stringifyRole(edge.getFrom()).str();
    for (auto role : edge.getTo().getAsRange<RoleAttr>())
      out.to.push_back(stringifyRole(role.getValue()).str());
    out.slots = edge.getSlots();
    out.arrivals = edge.getArrivals();
    out.offset = edge.getOffset();
    out.why = reasonsOf(edge);
    for (auto exchange : kernel.getOps<ExchangeOp>())
      if (exchange.getEdge() == edge.getSymName())
        out.exchange = exchange.getSymName().str();
    for (auto buffer : kernel.getOps<BufferOp>())
      if (buffer.getGuard() && *buffer.getGuard() == edge.getSymName())
        out.guards.push_back(buffer.getSymName().str());
    for (auto ring : kernel.getOps<RingOp>())
      if (ring.getFull() == edge.getSymName() || ring.getFree() == edge.getSymName()) {
        out.guards.push_back(ring.getSymName().str());
        for (Reason &reason : reasonsOf(ring))
          out.why.push_back(std::move(reason));
      }
    return out;
  }

  //===--------------------------------------------------------------------===//
  // Shared memory
  //===--------------------------------------------------------------------===//

  static void addMemory(KernelOp kernel, KernelFacts &out) {
    int64_t barriers = 0;
    for (EdgeOp edge : kernel.edges())
      if (edge.getOffset())
        barriers = std::max<int64_t>(barriers, *edge.getOffset() + 8 * edge.getSlots());
    if (barriers)
      out.memory.push_back({.name = "barriers", .kind = "barriers", .bytes = barriers});
    for (auto buffer : kernel.getOps<BufferOp>())
      if (buffer.getSpace() == Space::Smem)
        out.memory.push_back({.name = buffer.getSymName().str(),
                              .kind = "buffer",
                              .offset = buffer.getOffset().value_or(0),
                              .bytes = buffer.byteSize(),
                              .slots = buffer.getSlots(),
                              .alias = buffer.getAlias().value_or("").str(),
                              .guard = buffer.getGuard().value_or("").str(),
                              .why = reasonsOf(buffer)});
    for (auto ring : kernel.getOps<RingOp>())
      out.memory.push_back({.name = ring.getSymName().str(),
                            .kind = "ring",
                            .offset = ring.getOffset().value_or(0),
                            .bytes = int64_t(ring.getSlots()) * int64_t(ring.getSlotBytes()),
                            .slots = ring.getSlots(),
                            .guard = ring.getFull().str(),
                            .why = reasonsOf(ring)});
    llvm::stable_sort(
        out.memory, [](const MemoryFacts &a, const MemoryFacts &b) { return a.offset < b.offset; });
  }

  const runtime::Plan &plan;
  Costs costs;
  const Step step;
  Facts facts;
};

} // namespace

std::optional<std::pair<int64_t, int64_t>> expertRange(ModuleOp module) {
  std::optional<std::pair<int64_t, int64_t>> range;
  for (KernelOp kernel : module.getOps<KernelOp>())
    for (auto stage : kernel.getOps<StageOp>())
      if (stage.getKind() == StageKind::ExpertUp) {
        const int64_t topK = *configInt(stage, "top_k");
        range = {topK, std::min(*configInt(stage, "experts"), topK * kernel.getRows())};
      }
  return range;
}

Facts gather(ModuleOp module, const runtime::Plan &plan, const costs::CostTable *costs,
             const Step &step) {
  return Gatherer(plan, costs, step).gather(module);
}

} // namespace megalith::explain
