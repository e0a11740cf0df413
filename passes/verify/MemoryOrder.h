// The one table of memory orders: what has to stand between two accesses of the same bytes, one of
// them a write, and what each kind of edge gives. `task-verify` asks it which orders a kernel's
// edges must give, the lint which instructions must stand for them. docs/memory-order.md explains
// each row.
#pragma once

#include "ir/task/Task.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

namespace megalith::order {

/// The earlier access is named last, as usual.
enum class Hazard { ReadAfterWrite, WriteAfterRead, WriteAfterWrite };

/// How an access reaches memory. Generic: loads and stores of threads. Async: bulk copies.
enum class Proxy { Generic, Async };

/// How far apart the two accesses are, the nearest that holds for them.
enum class Reach {
  Cta,    ///< roles of one CTA; shared memory
  Gpu,    ///< CTAs of one launch
  Turn,   ///< launches of one looping kernel (`--scope=step`)
  Launch, ///< launches of the machine
  Sys,    ///< ranks
};

/// What orders the earlier access before the later one.
enum class Order {
  Barrier,        ///< mbarrier: arrive.release.cta, then try_wait.acquire.cta
  Bytes,          ///< mbarrier that the copy's bytes complete, then try_wait.acquire.cta
  BarrierFenced,  ///< as Barrier, with fence.proxy.async between the access and the arrival
  Words,          ///< relaxed.gpu words of the same width on both sides that prove themselves
  Counter,        ///< red.release.gpu, then ld.acquire.gpu
  LaunchBoundary, ///< griddepcontrol.wait, or a launch without a programmatic edge
  WordsOfRanks,   ///< as Words, relaxed.sys on both sides
  Acknowledged,   ///< a word back, relaxed.sys, that the reader stores after its read
  Never,          ///< no edge does: the schedule may not have such a pair
};

struct Row {
  Hazard hazard;
  Proxy from, to; ///< of the earlier, of the later access
  Reach reach;
  Order order;
};

/// Every (hazard, from, to, reach) once.
llvm::ArrayRef<Row> table();

/// What the table asks for.
Order required(Hazard hazard, Proxy from, Proxy to, Reach reach);

/// Whether edges of the kind, as the device headers implement them, give the order.
bool gives(task::EdgeKind kind, Order order);

/// "an mbarrier from its role", …: for messages and documentation.
llvm::StringRef describe(Order order);
llvm::StringRef nameOf(Hazard hazard);
llvm::StringRef nameOf(Proxy proxy);
llvm::StringRef nameOf(Reach reach);

/// One end of an edge in emitted PTX: `// megalith <verb> @name <order>`, code, `// megalith end`.
struct Emitted {
  task::EdgeKind kind;
  llvm::StringRef verb;  ///< "wait", "signal", "acquire", "release", "copy", "pace"
  llvm::StringRef order; ///< as the mark says: "acquire.cta", …
  /// Beginnings of instructions, without their predicate, one of which must stand there.
  /// Qualifiers that PTX may leave out stand for its defaults: mbarrier.arrive is release.cta,
  /// mbarrier.try_wait acquire.cta.
  llvm::ArrayRef<llvm::StringRef> instructions;
  /// Others that may, nothing else that touches memory strongly or synchronises.
  llvm::ArrayRef<llvm::StringRef> allowed;
};

/// All ends of edges that device headers emit.
llvm::ArrayRef<Emitted> emitted();

} // namespace megalith::order
