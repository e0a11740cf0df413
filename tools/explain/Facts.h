//===- Facts.h - what is known of a compiled plan ----------------*- C++ -*-===//
//
// Everything that `megalith explain` and `megalith report` tell, gathered from an artifact: the
// role regions (kernels.mlir) with the reasons that passes left in them, plan.json with what NVRTC
// said, and a table of costs. Nothing is decided here; floors are bytes over measured rates.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_TOOLS_EXPLAIN_FACTS_H
#define MEGALITH_TOOLS_EXPLAIN_FACTS_H

#include "passes/costs/CostTable.h"
#include "passes/why/Why.h"
#include "runtime/plan.h"

#include "mlir/IR/BuiltinOps.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace megalith::explain {

/// What a step is like, as far as the plan leaves it open.
struct Step {
  int64_t context = 0; ///< positions that each row's sequence has already
  /// Different experts that a layer's rows choose; 0: as many as rows that choose at random do on
  /// average.
  double experts = 0;
};

/// A time that the cost table gives.
struct Estimate {
  double us = 0;
  std::string cost; ///< its name in the table
};

struct StageFacts {
  std::string name, kind, source;
  int64_t sms = 0;
  std::optional<int64_t> tiles; ///< none: dealt out at run time, or replicated
  /// Of a looping kernel, the launches that it runs in; both 0: all.
  int64_t first = 0, end = 0;
  std::vector<std::string> depends; ///< stages of the same launch
  std::vector<std::string> edges;   ///< edges its roles wait for
  double bytes = 0;                 ///< that a launch must read from memory, each once
  std::string bytesOf;              ///< "weights", "weights of 8.0 experts", "keys and values"
  double smBytes = 0;               ///< the largest share of one SM
  int64_t piece = 0, window = 0;    ///< bytes of a copy, copies under way; 0: it streams nothing
  std::optional<Estimate> floor;    ///< `bytes` at the best rate of the table
  std::optional<Estimate> windowed; ///< at that of its window
  std::vector<Reason> why;
};

/// A stage at one end of an exchange, and the role that stores or polls.
struct Endpoint {
  std::string kernel, stage, role;
  bool previous = false; ///< polls what the launch before stored
  bool pieces = false;   ///< polls expert by expert, while others are worked on

  bool operator==(const Endpoint &) const = default;
};

struct ExchangeFacts {
  std::string name, edge, element, word;
  int64_t rows = 0, cols = 0, sets = 0;
  bool peers = false;    ///< every rank has a replica, which all store to
  int64_t setBytes = 0;  ///< of one set, as words
  int64_t pollBytes = 0; ///< that one SM's poll reads, at most
  std::vector<Endpoint> writers, readers;
  std::optional<Estimate> hop; ///< E; none where nobody polls it here, or ranks exchange it
  std::vector<Reason> why;     ///< of exchange and edge
};

struct EdgeFacts {
  int64_t id = 0;
  std::string name, kind, from;
  std::vector<std::string> to;
  int64_t slots = 1, arrivals = 1;
  std::optional<int64_t> offset;   ///< of its first mbarrier
  std::string exchange;            ///< of a words or launch edge
  std::vector<std::string> guards; ///< buffers that it hands over
  std::vector<Reason> why;
};

/// A stretch of a CTA's shared memory.
struct MemoryFacts {
  std::string name, kind; ///< "barriers", "buffer", "ring"
  int64_t offset = 0, bytes = 0, slots = 1;
  std::string alias; ///< group that shares bytes with another: "attention", "dense"
  std::string guard; ///< edge that hands it over
  std::vector<Reason> why;
};

/// Code of a role in a stage; of neither: the kernel's beginning; "called": functions out of line.
struct CodeFacts {
  std::string role, stage;
  int64_t bytes = 0;

  bool operator==(const CodeFacts &) const = default;
};

struct KernelFacts {
  std::string name, kind;
  int64_t launches = 0; ///< of a step
  int64_t smemBytes = 0, threads = 0, residents = 1;
  std::optional<runtime::KernelResources> resources;
  std::vector<StageFacts> stages;
  std::vector<ExchangeFacts> exchanges;
  std::vector<EdgeFacts> edges;
  std::vector<MemoryFacts> memory; ///< by offset
  std::vector<CodeFacts> code;     ///< empty: not known
  std::vector<Reason> why;

  double bytes() const;
  /// Sum of the stages' floors, and of the exchanges that follow one another, us.
  double floor() const, windowed() const, hops() const;
  /// How many exchanges those are.
  int64_t chain() const;
};

struct Facts {
  runtime::Plan plan;
  Step step;
  double experts = 0; ///< active a layer
  std::string device; ///< of the cost table; empty: there is none
  std::vector<KernelFacts> kernels;
};

/// Different experts of `experts` that `rows` rows choose, `topK` each, at random, on average.
double expectedExperts(int64_t experts, int64_t topK, int64_t rows);

/// The fewest and most different experts that a layer's rows can choose: one row's, and every row
/// its own, of those that there are. None in kernels without experts.
std::optional<std::pair<int64_t, int64_t>> expertRange(mlir::ModuleOp module);

/// `module` holds the plan's kernels at role level. `costs` may be null: then there are no times.
Facts gather(mlir::ModuleOp module, const runtime::Plan &plan, const costs::CostTable *costs,
             const Step &step);

/// Bytes of instructions that an SM keeps near (L1.5 of Hopper, where longer code got 0.3 us a KB
/// slower: docs/performance.md); 0 where it is not known.
int64_t instructionCacheBytes(llvm::StringRef target);

} // namespace megalith::explain

#endif // MEGALITH_TOOLS_EXPLAIN_FACTS_H
