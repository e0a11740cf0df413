#include "passes/verify/MemoryOrder.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/ErrorHandling.h"

using namespace megalith;
using namespace megalith::order;
using task::EdgeKind;

namespace {

constexpr auto RAW = Hazard::ReadAfterWrite, WAR = Hazard::WriteAfterRead,
               WAW = Hazard::WriteAfterWrite;
constexpr auto Generic = Proxy::Generic, Async = Proxy::Async;

// Reviewed row by row: docs/memory-order.md gives the reason of each.
constexpr Row kTable[] = {
    // Shared memory of a CTA. Bulk copies only write it.
    {RAW, Generic, Generic, Reach::Cta, Order::Barrier},
    {WAR, Generic, Generic, Reach::Cta, Order::Barrier},
    {WAW, Generic, Generic, Reach::Cta, Order::Barrier},
    {RAW, Async, Generic, Reach::Cta, Order::Bytes},
    {WAR, Async, Generic, Reach::Cta, Order::Never},
    {WAW, Async, Generic, Reach::Cta, Order::Bytes},
    {RAW, Generic, Async, Reach::Cta, Order::BarrierFenced},
    {WAR, Generic, Async, Reach::Cta, Order::Barrier},
    {WAW, Generic, Async, Reach::Cta, Order::BarrierFenced},
    {RAW, Async, Async, Reach::Cta, Order::Never},
    {WAR, Async, Async, Reach::Cta, Order::Never},
    {WAW, Async, Async, Reach::Cta, Order::Bytes},

    // Global memory, CTAs of one launch. Bulk copies only read it.
    {RAW, Generic, Generic, Reach::Gpu, Order::Words},
    {WAR, Generic, Generic, Reach::Gpu, Order::Never},
    {WAW, Generic, Generic, Reach::Gpu, Order::Never},
    {RAW, Async, Generic, Reach::Gpu, Order::Never},
    {WAR, Async, Generic, Reach::Gpu, Order::Never},
    {WAW, Async, Generic, Reach::Gpu, Order::Never},
    {RAW, Generic, Async, Reach::Gpu, Order::Never},
    {WAR, Generic, Async, Reach::Gpu, Order::Never},
    {WAW, Generic, Async, Reach::Gpu, Order::Never},
    {RAW, Async, Async, Reach::Gpu, Order::Never},
    {WAR, Async, Async, Reach::Gpu, Order::Never},
    {WAW, Async, Async, Reach::Gpu, Order::Never},

    // Launches of a looping kernel.
    {RAW, Generic, Generic, Reach::Turn, Order::Counter},
    {WAR, Generic, Generic, Reach::Turn, Order::Counter},
    {WAW, Generic, Generic, Reach::Turn, Order::Counter},
    {RAW, Async, Generic, Reach::Turn, Order::Never},
    {WAR, Async, Generic, Reach::Turn, Order::Counter},
    {WAW, Async, Generic, Reach::Turn, Order::Never},
    {RAW, Generic, Async, Reach::Turn, Order::Never},
    {WAR, Generic, Async, Reach::Turn, Order::Never},
    {WAW, Generic, Async, Reach::Turn, Order::Never},
    {RAW, Async, Async, Reach::Turn, Order::Never},
    {WAR, Async, Async, Reach::Turn, Order::Never},
    {WAW, Async, Async, Reach::Turn, Order::Never},

    // Launches of the machine.
    {RAW, Generic, Generic, Reach::Launch, Order::LaunchBoundary},
    {WAR, Generic, Generic, Reach::Launch, Order::LaunchBoundary},
    {WAW, Generic, Generic, Reach::Launch, Order::LaunchBoundary},
    {RAW, Async, Generic, Reach::Launch, Order::Never},
    {WAR, Async, Generic, Reach::Launch, Order::LaunchBoundary},
    {WAW, Async, Generic, Reach::Launch, Order::Never},
    {RAW, Generic, Async, Reach::Launch, Order::LaunchBoundary},
    {WAR, Generic, Async, Reach::Launch, Order::Never},
    {WAW, Generic, Async, Reach::Launch, Order::Never},
    {RAW, Async, Async, Reach::Launch, Order::Never},
    {WAR, Async, Async, Reach::Launch, Order::Never},
    {WAW, Async, Async, Reach::Launch, Order::Never},

    // Ranks.
    {RAW, Generic, Generic, Reach::Sys, Order::WordsOfRanks},
    {WAR, Generic, Generic, Reach::Sys, Order::Acknowledged},
    {WAW, Generic, Generic, Reach::Sys, Order::Acknowledged},
    {RAW, Async, Generic, Reach::Sys, Order::Never},
    {WAR, Async, Generic, Reach::Sys, Order::Never},
    {WAW, Async, Generic, Reach::Sys, Order::Never},
    {RAW, Generic, Async, Reach::Sys, Order::Never},
    {WAR, Generic, Async, Reach::Sys, Order::Never},
    {WAW, Generic, Async, Reach::Sys, Order::Never},
    {RAW, Async, Async, Reach::Sys, Order::Never},
    {WAR, Async, Async, Reach::Sys, Order::Never},
    {WAW, Async, Async, Reach::Sys, Order::Never},
};

using Texts = llvm::StringRef[];
constexpr Texts kTryWait = {"mbarrier.try_wait.parity"};
constexpr Texts kArrive = {"mbarrier.arrive.shared", "mbarrier.arrive.release.cta.shared"};
constexpr Texts kExpect = {"mbarrier.arrive.expect_tx.shared",
                           "mbarrier.arrive.expect_tx.release.cta.shared"};
constexpr Texts kBulk = {"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"};
// A word: b32, four of them at once, or a b128 that carries its epoch.
constexpr Texts kLoadWord = {"ld.relaxed.gpu.global.b32", "ld.relaxed.gpu.global.v4.b32",
                             "ld.relaxed.gpu.global.b128"};
constexpr Texts kStoreWord = {"st.relaxed.gpu.global.b32", "st.relaxed.gpu.global.b128"};
// Of several ranks.
constexpr Texts kLoadWordOfRanks = {"ld.relaxed.sys.global.b32", "ld.relaxed.sys.global.v4.b32"};
constexpr Texts kStoreWordOfRanks = {"st.relaxed.sys.global.b32"};
constexpr Texts kLoadNumber = {"ld.acquire.sys.global"};
constexpr Texts kStoreNumber = {"st.release.sys.global"};
// Polled words go to shared memory, and warps vote on them.
constexpr Texts kFetch = {"mbarrier.expect_tx.relaxed.cta", "cp.async.bulk.shared::cluster.global"};
constexpr Texts kAwait = {"ld.acquire.gpu.global", "griddepcontrol.wait"};
constexpr Texts kFinish = {"red.release.gpu.global.add"};

constexpr Emitted kEmitted[] = {
    {EdgeKind::Mbarrier, "wait", "acquire.cta", kTryWait, {}},
    {EdgeKind::Mbarrier, "signal", "release.cta", kArrive, {}},
    {EdgeKind::Credit, "acquire", "acquire.cta", kTryWait, {}},
    {EdgeKind::Credit, "release", "release.cta", kArrive, {}},
    {EdgeKind::Bytes, "wait", "acquire.cta", kTryWait, {}},
    {EdgeKind::Bytes, "copy", "async.cta", kExpect, kBulk},
    {EdgeKind::Bytes, "pace", "relaxed.cta", kTryWait, {}},
    {EdgeKind::Words, "wait", "relaxed.gpu", kLoadWord, {}},
    {EdgeKind::Words, "signal", "relaxed.gpu", kStoreWord, {}},
    {EdgeKind::Words, "wait", "relaxed.sys", kLoadWordOfRanks, {}},
    {EdgeKind::Words, "signal", "relaxed.sys", kStoreWordOfRanks, {}},
    {EdgeKind::Words, "wait", "acquire.sys", kLoadNumber, {}},
    {EdgeKind::Words, "signal", "release.sys", kStoreNumber, {}},
    // What an earlier launch wrote is read as words or brought by bulk copies.
    {EdgeKind::Launch, "wait", "relaxed.gpu", kLoadWord, kFetch},
    {EdgeKind::Launch, "signal", "relaxed.gpu", kStoreWord, {}},
    {EdgeKind::Launches, "wait", "acquire.gpu", kAwait, {}},
    {EdgeKind::Launches, "signal", "release.gpu", kFinish, {}},
};

} // namespace

llvm::ArrayRef<Row> order::table() {
  return kTable;
}

Order order::required(Hazard hazard, Proxy from, Proxy to, Reach reach) {
  for (const Row &row : kTable)
    if (row.hazard == hazard && row.from == from && row.to == to && row.reach == reach)
      return row.order;
  llvm_unreachable("the table has every row");
}

bool order::gives(EdgeKind kind, Order order) {
  switch (kind) {
  case EdgeKind::Mbarrier:
    // Bytes that were added to its phase complete it too (copy_for).
    return order == Order::Barrier || order == Order::Bytes;
  case EdgeKind::Credit:
    return order == Order::Barrier;
  case EdgeKind::Bytes:
    return order == Order::Barrier || order == Order::Bytes;
  case EdgeKind::Words:
    // Those of ranks are of system scope; numbers, which release and acquire, say that a set was
    // emptied before another rank stores to it (Ranks.cpp).
    return order == Order::Words || order == Order::WordsOfRanks || order == Order::Acknowledged;
  case EdgeKind::Launch:
    return order == Order::LaunchBoundary;
  case EdgeKind::Launches:
    return order == Order::Counter;
  }
  llvm_unreachable("all kinds of edges");
}

llvm::StringRef order::describe(Order order) {
  switch (order) {
  case Order::Barrier:
    return "an mbarrier or credit edge from its role";
  case Order::Bytes:
    return "a wait for the edge that its bytes complete";
  case Order::BarrierFenced:
    return "fence.proxy.async and an edge, which no device function has";
  case Order::Words:
    return "words that prove themselves";
  case Order::Counter:
    return "a launches edge";
  case Order::LaunchBoundary:
    return "task.launch_wait";
  case Order::WordsOfRanks:
    return "words of system scope that prove themselves";
  case Order::Acknowledged:
    return "an acknowledgement of the read";
  case Order::Never:
    return "that the two never touch the same bytes";
  }
  llvm_unreachable("all orders");
}

llvm::StringRef order::nameOf(Hazard hazard) {
  return hazard == RAW   ? "read after write"
         : hazard == WAR ? "write after read"
                         : "write after write";
}

llvm::StringRef order::nameOf(Proxy proxy) {
  return proxy == Generic ? "generic" : "async";
}

llvm::StringRef order::nameOf(Reach reach) {
  constexpr llvm::StringRef kNames[] = {"cta", "gpu", "turn", "launch", "sys"};
  return kNames[static_cast<int>(reach)];
}

llvm::ArrayRef<Emitted> order::emitted() {
  return kEmitted;
}
