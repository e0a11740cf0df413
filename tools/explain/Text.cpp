//===- Text.cpp - facts for people ------------------------------------------===//

#include "tools/explain/Text.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <algorithm>
#include <set>

using namespace llvm;

namespace megalith::explain {

std::string withCommas(int64_t number) {
  std::string digits = std::to_string(std::abs(number)), text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i && (digits.size() - i) % 3 == 0)
      text += ',';
    text += digits[i];
  }
  return (number < 0 ? "-" : "") + text;
}

namespace {

std::string megabytes(double bytes) {
  return bytes <= 0 ? "-" : formatv("{0:f2}", bytes / 1e6).str();
}

std::string microseconds(const std::optional<Estimate> &estimate) {
  return estimate ? formatv("{0:f2}", estimate->us).str() : "-";
}

std::string endpoint(const Endpoint &end, StringRef kernel) {
  std::string text = "@" + end.stage + " (" + end.role;
  if (end.kernel != kernel)
    text += ", kernel " + end.kernel;
  if (end.previous)
    text += ", of the launch before";
  if (end.pieces)
    text += ", expert by expert";
  return text + ")";
}

std::string endpoints(const std::vector<Endpoint> &ends, StringRef kernel) {
  std::vector<std::string> texts;
  for (const Endpoint &end : ends)
    texts.push_back(endpoint(end, kernel));
  return texts.empty() ? "nobody" : join(texts, ", ");
}

class Printer {
public:
  explicit Printer(const Facts &facts) : facts(facts), os(text) {}

  std::string overview() {
    head();
    for (const KernelFacts &kernel : facts.kernels) {
      os << "\n";
      kernelLine(kernel);
      limits(kernel);
      stageTable(kernel);
      codeTable(kernel);
      decisions(kernel);
    }
    return text;
  }

  Expected<std::string> about(StringRef subject) {
    StringRef within, name = subject;
    if (subject.contains('/'))
      std::tie(within, name) = subject.split('/');
    name.consume_front("@");
    bool isFound = false;
    for (const KernelFacts &kernel : facts.kernels) {
      if (!within.empty() && within != kernel.name)
        continue;
      if (kernel.name == name) {
        isFound = true;
        kernelLine(kernel);
        reasons(kernel.why);
        limits(kernel);
        stageTable(kernel);
        codeTable(kernel);
      }
      isFound |= one(kernel, name);
    }
    if (isFound)
      return text;
    return createStringError(
        formatv("expected a kernel, stage, exchange, edge, buffer or ring of the plan, or "
                "KERNEL/NAME, but got '{0}'; there are {1}",
                subject, names()));
  }

private:
  void head() {
    const runtime::Plan &plan = facts.plan;
    os << formatv("{0} for {1}, rows {2}, {3} SMs, {4}: {5} launches a step\n", plan.model,
                  plan.target, plan.rows, plan.sms, runtime::str(plan.launchMode),
                  plan.launches.size());
    os << "Reasons are those that the passes recorded when they decided. ";
    if (facts.device.empty())
      os << "No table of costs: no times.\n";
    else
      os << formatv("Times in microseconds: bytes over rates,\nand exchanges, as measured on {0}; "
                    "context {1}, {2:f1} experts a layer.\n",
                    facts.device, withCommas(facts.step.context), facts.experts);
  }

  void kernelLine(const KernelFacts &kernel) {
    os << formatv("kernel {0} ({1}): {2} of a step's launches; {3} bytes of shared memory",
                  kernel.name, kernel.kind, kernel.launches, withCommas(kernel.smemBytes));
    if (kernel.resources)
      os << formatv("; {0} registers, {1} bytes spilled, {2} bytes of code",
                    kernel.resources->registers, withCommas(kernel.resources->spillBytes),
                    withCommas(kernel.resources->codeBytes));
    os << "\n";
  }

  void limits(const KernelFacts &kernel) {
    os << "  what limits a launch\n";
    const bool hasTimes = !facts.device.empty();
    auto line = [&](StringRef what, const std::string &how) {
      os << formatv("    {0,-15}{1}\n", what, how);
    };
    std::string memory = megabytes(kernel.bytes()) + " MB";
    if (hasTimes)
      memory += formatv(": {0:f2} us at the best rate, {1:f2} at the stages' windows",
                        kernel.floor(), kernel.windowed());
    line("memory", memory);
    std::string hops = formatv("{0} one after another", kernel.chain());
    if (hasTimes)
      hops += formatv(": {0:f2} us", kernel.hops());
    line("exchanges", hops);
    if (hasTimes)
      line("together", formatv("{0:f2} us if neither hides any of the other",
                               kernel.windowed() + kernel.hops()));
    const int64_t cache = instructionCacheBytes(facts.plan.target);
    if (kernel.resources && cache) {
      const int64_t code = kernel.resources->codeBytes;
      line("code", formatv("{0} bytes, {1} the about {2} of an SM's instruction cache",
                           withCommas(code), code > cache ? "over" : "within", withCommas(cache)));
    }
    for (const MemoryFacts &memory : kernel.memory)
      if (memory.kind == "ring")
        line("shared memory",
             formatv("the ring has {0} of {1} bytes, {2} slots", withCommas(memory.bytes),
                     withCommas(kernel.smemBytes), memory.slots));
  }

  /// A line a stage, a column a role.
  void codeTable(const KernelFacts &kernel) {
    if (kernel.code.empty())
      return;
    constexpr StringRef kRoles[] = {"producer", "poller", "consumer", "epilogue"};
    auto bytes = [&](StringRef role, StringRef stage, bool isSum) {
      int64_t sum = 0;
      for (const CodeFacts &part : kernel.code)
        if (part.role == role && (isSum || part.stage == stage))
          sum += part.bytes;
      return sum ? withCommas(sum) : std::string("-");
    };
    auto line = [&](StringRef name, StringRef stage, bool isSum) {
      os << formatv("  {0,-14}", name);
      for (StringRef role : kRoles)
        os << formatv("{0,10}", bytes(role, stage, isSum));
      os << "\n";
    };
    os << formatv("  {0,-14}{1,10}{2,10}{3,10}{4,10}\n", "bytes of code", kRoles[0], kRoles[1],
                  kRoles[2], kRoles[3]);
    for (const StageFacts &stage : kernel.stages)
      line(stage.name, stage.name, false);
    line("all", "", true);
    os << formatv("  beginning {0}, functions that are called {1}\n", bytes("", "", false),
                  bytes("called", "", false));
  }

  void stageTable(const KernelFacts &kernel) {
    os << formatv("  {0,-14}{1,5}{2,10}{3,9}{4,9}{5,9}  {6}\n", "stage", "SMs", "MB", "floor",
                  "window", "E", "reads; waits for");
    for (const StageFacts &stage : kernel.stages) {
      std::string hop = "-";
      std::vector<std::string> waits;
      for (const ExchangeFacts &exchange : kernel.exchanges)
        for (const Endpoint &reader : exchange.readers)
          if (reader.stage == stage.name) {
            if (exchange.hop && reader.role != "epilogue" && !reader.pieces)
              hop = microseconds(exchange.hop);
            if (!is_contained(waits, exchange.edge))
              waits.push_back(exchange.edge);
          }
      os << formatv("  {0,-14}{1,5}{2,10}{3,9}{4,9}{5,9}  {6}{7}{8}\n", stage.name, stage.sms,
                    megabytes(stage.bytes), microseconds(stage.floor), microseconds(stage.windowed),
                    hop, stage.bytesOf, !stage.bytesOf.empty() && !waits.empty() ? "; " : "",
                    join(waits, ", "));
    }
  }

  //===--------------------------------------------------------------------===//
  // Decisions
  //===--------------------------------------------------------------------===//

  /// One of each kind of thing that a kernel has, with its reasons.
  template <class Each> static void eachSubject(const KernelFacts &kernel, Each each) {
    each("kernel", kernel.name, kernel.why);
    for (const StageFacts &stage : kernel.stages)
      each("stage", stage.name, stage.why);
    for (const ExchangeFacts &exchange : kernel.exchanges)
      each("exchange", exchange.name, exchange.why);
    for (const EdgeFacts &edge : kernel.edges)
      if (edge.exchange.empty() && edge.guards != std::vector<std::string>{"ring"})
        each("edge", edge.name, edge.why);
    for (const MemoryFacts &memory : kernel.memory)
      each(memory.kind, memory.name, memory.why);
  }

  void decisions(const KernelFacts &kernel) {
    os << "  what was decided, and why\n";
    eachSubject(kernel, [&](StringRef kind, StringRef name, const std::vector<Reason> &why) {
      bool isFirst = true;
      for (const Reason &reason : why) {
        if (!told.insert((kind + name + reason.what + reason.chose + reason.because).str()).second)
          continue;
        if (isFirst)
          os << "    " << kind << " @" << name << "\n";
        isFirst = false;
        tell(reason, 6);
      }
    });
  }

  void tell(const Reason &reason, unsigned indent) {
    os.indent(indent) << reason.what << ": " << reason.chose << "\n";
    os.indent(indent + 2) << "because " << reason.because << " (" << reason.by << ")\n";
  }

  void reasons(const std::vector<Reason> &why) {
    for (const Reason &reason : why)
      tell(reason, 2);
  }

  //===--------------------------------------------------------------------===//
  // One subject
  //===--------------------------------------------------------------------===//

  bool one(const KernelFacts &kernel, StringRef name) {
    bool isFound = false;
    auto title = [&](StringRef kind) -> raw_ostream & {
      isFound = true;
      return os << formatv("{0} @{1} of kernel {2}", kind, name, kernel.name);
    };
    for (const StageFacts &stage : kernel.stages)
      if (stage.name == name) {
        title("stage") << formatv(" ({0}, from {1}), on {2} SMs\n", stage.kind,
                                  stage.source.empty() ? "no op" : stage.source, stage.sms);
        this->stage(stage);
      }
    for (const ExchangeFacts &exchange : kernel.exchanges)
      if (exchange.name == name || exchange.edge == name) {
        title("exchange") << formatv(": [{0}, {1}] {2} as {3} words, {4} set{5} of {6} bytes{7}\n",
                                     exchange.rows, exchange.cols, exchange.element, exchange.word,
                                     exchange.sets, exchange.sets == 1 ? "" : "s",
                                     withCommas(exchange.setBytes),
                                     exchange.peers ? ", a replica on each rank" : "");
        this->exchange(kernel, exchange);
      }
    for (const EdgeFacts &edge : kernel.edges)
      if (edge.name == name && edge.exchange.empty()) {
        title("edge") << formatv(" {0} ({1}): {2} -> {3}, {4} slot{5}, {6} arrival{7} each\n",
                                 edge.id, edge.kind, edge.from, join(edge.to, ", "), edge.slots,
                                 edge.slots == 1 ? "" : "s", edge.arrivals,
                                 edge.arrivals == 1 ? "" : "s");
        for (const std::string &guarded : edge.guards)
          os << "  hands over @" << guarded << "\n";
        reasons(edge.why);
      }
    for (const MemoryFacts &memory : kernel.memory)
      if (memory.name == name) {
        title(memory.kind) << formatv(
            ": bytes {0} to {1} of shared memory, {2} slot{3}\n", withCommas(memory.offset),
            withCommas(memory.offset + memory.bytes), memory.slots, memory.slots == 1 ? "" : "s");
        if (!memory.alias.empty())
          os << "  shares them with the buffers of the other phase (" << memory.alias << ")\n";
        if (!memory.guard.empty())
          os << "  handed over by @" << memory.guard << "\n";
        reasons(memory.why);
      }
    return isFound;
  }

  void stage(const StageFacts &stage) {
    if (stage.end)
      os << formatv("  runs in launches {0} to {1} of a step\n", stage.first, stage.end - 1);
    if (!stage.depends.empty())
      os << "  after @" << join(stage.depends, ", @") << " of its launch\n";
    if (!stage.edges.empty())
      os << "  waits for @" << join(stage.edges, ", @") << "\n";
    if (stage.bytes > 0) {
      os << formatv("  reads {0} MB of {1}", megabytes(stage.bytes), stage.bytesOf);
      if (stage.smBytes > 0)
        os << formatv(", at most {0} bytes an SM", withCommas(int64_t(stage.smBytes)));
      os << "\n";
    }
    if (stage.floor)
      os << formatv("  floor {0:f2} us by {1}\n", stage.floor->us, stage.floor->cost);
    if (stage.windowed)
      os << formatv("  {0:f2} us with {1} copies of {2} bytes under way, by {3}\n",
                    stage.windowed->us, stage.window, withCommas(stage.piece),
                    stage.windowed->cost);
    reasons(stage.why);
  }

  void exchange(const KernelFacts &kernel, const ExchangeFacts &exchange) {
    os << "  stored by " << endpoints(exchange.writers, kernel.name) << "\n";
    os << "  polled by " << endpoints(exchange.readers, kernel.name);
    if (exchange.pollBytes)
      os << formatv(", {0} bytes at a time", withCommas(exchange.pollBytes));
    os << "\n";
    if (exchange.hop)
      os << formatv("  E {0:f2} us by {1}\n", exchange.hop->us, exchange.hop->cost);
    reasons(exchange.why);
  }

  std::string names() const {
    std::set<std::string> all;
    for (const KernelFacts &kernel : facts.kernels) {
      all.insert(kernel.name);
      for (const StageFacts &stage : kernel.stages)
        all.insert(stage.name);
      for (const EdgeFacts &edge : kernel.edges)
        all.insert(edge.name);
      for (const MemoryFacts &memory : kernel.memory)
        all.insert(memory.name);
    }
    return join(all, ", ");
  }

  const Facts &facts;
  std::string text;
  raw_string_ostream os;
  std::set<std::string> told;
};

} // namespace

std::string overview(const Facts &facts) {
  return Printer(facts).overview();
}

Expected<std::string> about(const Facts &facts, StringRef subject) {
  return Printer(facts).about(subject);
}

} // namespace megalith::explain
