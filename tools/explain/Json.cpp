//===- Json.cpp - facts for programs ----------------------------------------===//

#include "tools/explain/Text.h"

using namespace llvm;

namespace megalith::explain {

namespace {

class Writer {
public:
  Writer(const Facts &facts, json::OStream &os) : facts(facts), os(os) {}

  void write() {
    const runtime::Plan &plan = facts.plan;
    os.attribute("format", "megalith-explain");
    os.attribute("version", kFactsJsonVersion);
    os.attribute("model", plan.model);
    os.attribute("target", plan.target);
    os.attribute("sms", plan.sms);
    os.attribute("rows", plan.rows);
    os.attribute("layers", plan.layers);
    os.attribute("launch_mode", runtime::str(plan.launchMode));
    os.attribute("launches", int64_t(plan.launches.size()));
    os.attribute("context", facts.step.context);
    os.attribute("experts", facts.experts);
    os.attribute("device", facts.device);
    os.attribute("instruction_cache", instructionCacheBytes(plan.target));
    list("kernels", facts.kernels, [&](const KernelFacts &kernel) { this->kernel(kernel); });
  }

private:
  template <class T, class Each> void list(StringRef key, const std::vector<T> &values, Each each) {
    os.attributeArray(key, [&] {
      for (const T &value : values)
        os.object([&] { each(value); });
    });
  }

  void names(StringRef key, const std::vector<std::string> &values) {
    os.attributeArray(key, [&] {
      for (const std::string &value : values)
        os.value(value);
    });
  }

  void estimate(StringRef key, const std::optional<Estimate> &estimate) {
    if (estimate)
      os.attributeObject(key, [&] {
        os.attribute("us", estimate->us);
        os.attribute("cost", estimate->cost);
      });
  }

  void why(const std::vector<Reason> &reasons) {
    list("why", reasons, [&](const Reason &reason) {
      os.attribute("by", reason.by);
      os.attribute("what", reason.what);
      os.attribute("chose", reason.chose);
      os.attribute("because", reason.because);
    });
  }

  void kernel(const KernelFacts &kernel) {
    os.attribute("name", kernel.name);
    os.attribute("kind", kernel.kind);
    os.attribute("launches", kernel.launches);
    os.attribute("smem_bytes", kernel.smemBytes);
    os.attribute("threads", kernel.threads);
    os.attribute("residents", kernel.residents);
    if (kernel.resources)
      os.attributeObject("resources", [&] {
        os.attribute("registers", kernel.resources->registers);
        os.attribute("spill_bytes", kernel.resources->spillBytes);
        os.attribute("stack_bytes", kernel.resources->stackBytes);
        os.attribute("code_bytes", kernel.resources->codeBytes);
      });
    os.attribute("bytes", kernel.bytes());
    if (!facts.device.empty()) {
      os.attribute("floor_us", kernel.floor());
      os.attribute("windowed_us", kernel.windowed());
      os.attribute("hops_us", kernel.hops());
    }
    os.attribute("chain", kernel.chain());
    why(kernel.why);
    list("stages", kernel.stages, [&](const StageFacts &stage) { this->stage(stage); });
    list("exchanges", kernel.exchanges,
         [&](const ExchangeFacts &exchange) { this->exchange(exchange); });
    list("edges", kernel.edges, [&](const EdgeFacts &edge) { this->edge(edge); });
    if (!kernel.code.empty())
      list("code", kernel.code, [&](const CodeFacts &part) {
        os.attribute("role", part.role);
        os.attribute("stage", part.stage);
        os.attribute("bytes", part.bytes);
      });
    list("memory", kernel.memory, [&](const MemoryFacts &memory) { this->memory(memory); });
  }

  void stage(const StageFacts &stage) {
    os.attribute("name", stage.name);
    os.attribute("kind", stage.kind);
    os.attribute("source", stage.source);
    os.attribute("sms", stage.sms);
    if (stage.tiles)
      os.attribute("tiles", *stage.tiles);
    if (stage.end) {
      os.attribute("first", stage.first);
      os.attribute("end", stage.end);
    }
    names("depends", stage.depends);
    names("edges", stage.edges);
    os.attribute("bytes", stage.bytes);
    os.attribute("bytes_of", stage.bytesOf);
    os.attribute("sm_bytes", stage.smBytes);
    os.attribute("piece", stage.piece);
    os.attribute("window", stage.window);
    estimate("floor", stage.floor);
    estimate("windowed", stage.windowed);
    why(stage.why);
  }

  void ends(StringRef key, const std::vector<Endpoint> &endpoints) {
    list(key, endpoints, [&](const Endpoint &end) {
      os.attribute("kernel", end.kernel);
      os.attribute("stage", end.stage);
      os.attribute("role", end.role);
      os.attribute("previous", end.previous);
      os.attribute("pieces", end.pieces);
    });
  }

  void exchange(const ExchangeFacts &exchange) {
    os.attribute("name", exchange.name);
    os.attribute("edge", exchange.edge);
    os.attribute("element", exchange.element);
    os.attribute("word", exchange.word);
    os.attribute("rows", exchange.rows);
    os.attribute("cols", exchange.cols);
    os.attribute("sets", exchange.sets);
    os.attribute("peers", exchange.peers);
    os.attribute("set_bytes", exchange.setBytes);
    os.attribute("poll_bytes", exchange.pollBytes);
    ends("writers", exchange.writers);
    ends("readers", exchange.readers);
    estimate("hop", exchange.hop);
    why(exchange.why);
  }

  void edge(const EdgeFacts &edge) {
    os.attribute("id", edge.id);
    os.attribute("name", edge.name);
    os.attribute("kind", edge.kind);
    os.attribute("from", edge.from);
    names("to", edge.to);
    os.attribute("slots", edge.slots);
    os.attribute("arrivals", edge.arrivals);
    if (edge.offset)
      os.attribute("offset", *edge.offset);
    if (!edge.exchange.empty())
      os.attribute("exchange", edge.exchange);
    names("guards", edge.guards);
    why(edge.why);
  }

  void memory(const MemoryFacts &memory) {
    os.attribute("name", memory.name);
    os.attribute("kind", memory.kind);
    os.attribute("offset", memory.offset);
    os.attribute("bytes", memory.bytes);
    os.attribute("slots", memory.slots);
    if (!memory.alias.empty())
      os.attribute("alias", memory.alias);
    if (!memory.guard.empty())
      os.attribute("guard", memory.guard);
    why(memory.why);
  }

  const Facts &facts;
  json::OStream &os;
};

} // namespace

void toJson(const Facts &facts, json::OStream &os) {
  os.object([&] { Writer(facts, os).write(); });
}

} // namespace megalith::explain
