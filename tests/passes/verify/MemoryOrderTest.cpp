// The table of memory orders is whole, and docs/memory-order.md says the same.
#include "passes/verify/MemoryOrder.h"

#include <catch2/catch.hpp>

#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <tuple>

using namespace megalith;
using namespace megalith::order;

namespace {

constexpr Hazard kHazards[] = {Hazard::ReadAfterWrite, Hazard::WriteAfterRead,
                               Hazard::WriteAfterWrite};
constexpr Proxy kProxies[] = {Proxy::Generic, Proxy::Async};
constexpr Reach kReaches[] = {Reach::Cta, Reach::Gpu, Reach::Turn, Reach::Launch, Reach::Sys};
const std::map<Order, std::string> kNames = {{Order::Barrier, "Barrier"},
                                             {Order::Bytes, "Bytes"},
                                             {Order::BarrierFenced, "BarrierFenced"},
                                             {Order::Words, "Words"},
                                             {Order::Counter, "Counter"},
                                             {Order::LaunchBoundary, "LaunchBoundary"},
                                             {Order::WordsOfRanks, "WordsOfRanks"},
                                             {Order::Acknowledged, "Acknowledged"}};

std::string lineOf(const Row &row) {
  return "| " + nameOf(row.hazard).str() + " | " + nameOf(row.from).str() + " | " +
         nameOf(row.to).str() + " | " + nameOf(row.reach).str() + " | " + kNames.at(row.order) +
         " |";
}

} // namespace

TEST_CASE("the table has every row once") {
  std::set<std::tuple<Hazard, Proxy, Proxy, Reach>> rows;
  for (const Row &row : table())
    CHECK(rows.insert({row.hazard, row.from, row.to, row.reach}).second);
  for (Hazard hazard : kHazards)
    for (Proxy from : kProxies)
      for (Proxy to : kProxies)
        for (Reach reach : kReaches)
          CHECK(rows.count({hazard, from, to, reach}) == 1);
}

TEST_CASE("docs/memory-order.md lists the rows that are not Never") {
  std::ifstream file("docs/memory-order.md");
  REQUIRE(file);
  std::multiset<std::string> said, meant;
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("| read after") || line.starts_with("| write after"))
      said.insert(line);
  for (const Row &row : table())
    if (row.order != Order::Never)
      meant.insert(lineOf(row));
  CHECK(said == meant);
}

TEST_CASE("every end of an edge has its instruction, and every mark is documented") {
  std::ifstream file("docs/memory-order.md");
  std::stringstream text;
  text << file.rdbuf();
  std::set<std::tuple<task::EdgeKind, std::string, std::string>> ends;
  for (const Emitted &end : emitted()) {
    CHECK(ends.insert({end.kind, end.verb.str(), end.order.str()}).second);
    CHECK_FALSE(end.instructions.empty());
    CHECK_THAT(text.str(), Catch::Contains("| " + task::stringifyEdgeKind(end.kind).str() + " | " +
                                           end.verb.str() + " | " + end.order.str() + " |"));
  }
}

TEST_CASE("each order is given by some edge, or refused") {
  // No device function has the fence.
  const std::set<Order> ungiven = {Order::BarrierFenced, Order::Never};
  constexpr task::EdgeKind kKinds[] = {task::EdgeKind::Mbarrier, task::EdgeKind::Bytes,
                                       task::EdgeKind::Credit,   task::EdgeKind::Words,
                                       task::EdgeKind::Launch,   task::EdgeKind::Launches};
  for (const Row &row : table())
    CHECK(llvm::any_of(kKinds, [&](auto kind) { return gives(kind, row.order); }) ==
          !ungiven.count(row.order));
}
