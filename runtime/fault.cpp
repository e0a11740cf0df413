//===- fault.cpp - Which missed deadline is the cause -----------------------===//

#include "runtime/fault.h"

#include "runtime/trace.h"

#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/STLExtras.h"

#include <map>
#include <tuple>

namespace megalith::runtime {

std::vector<FaultRecord> writtenRecords(const FaultTable *table) {
  const auto *records = reinterpret_cast<const FaultRecord *>(table + 1);
  std::vector<FaultRecord> written;
  for (uint32_t place = 0; place < table->places; ++place)
    if (records[place].valid == 1)
      written.push_back(records[place]);
  return written;
}

namespace {

/// Waits of one launch, those of a role's warps on an SM for the same edge as one.
class Waits {
public:
  Waits(const Kernel &kernel, std::span<const FaultRecord> faults) : kernel(kernel) {
    std::map<std::tuple<uint32_t, llvm::StringRef, uint32_t>, const FaultRecord *> distinct;
    for (const FaultRecord &fault : faults)
      if (fault.edge < kernel.edges.size())
        distinct.try_emplace({fault.sm, roleOfWarp(fault.warp), fault.edge}, &fault);
    for (const auto &[key, fault] : distinct)
      list.push_back(fault);
    reached.resize(list.size());
    for (size_t i = 0; i < list.size(); ++i)
      reach(i);
  }

  /// Null if no record names an edge of the kernel.
  const FaultRecord *root() const {
    std::optional<size_t> best;
    for (size_t i = 0; i < list.size(); ++i)
      if (isLast(i) && (!best || key(i) < key(*best)))
        best = i;
    return best ? list[*best] : nullptr;
  }

private:
  const Edge &edgeOf(const FaultRecord &fault) const { return kernel.edges[fault.edge]; }

  /// Whether `waiting` has not got its signal because `by` waits.
  bool explains(const FaultRecord &waiting, const FaultRecord &by) const {
    const Edge &edge = edgeOf(waiting);
    return &waiting != &by && roleOfWarp(by.warp) == edge.from &&
           (!edge.isLocal() || by.sm == waiting.sm) && llvm::is_contained(edge.after, by.edge);
  }

  /// All that `first` waits behind, whoever comes between.
  void reach(size_t first) {
    llvm::BitVector &seen = reached[first];
    seen.resize(list.size());
    std::vector<size_t> work = {first};
    while (!work.empty()) {
      const size_t at = work.back();
      work.pop_back();
      for (size_t by = 0; by < list.size(); ++by)
        if (!seen[by] && explains(*list[at], *list[by])) {
          seen.set(by);
          work.push_back(by);
        }
    }
  }

  /// Whether there is nothing behind it but circles through itself.
  bool isLast(size_t i) const {
    return llvm::all_of(reached[i].set_bits(), [&](unsigned by) { return reached[by][i]; });
  }

  static int rankOf(llvm::StringRef kind) {
    return kind == "words" ? 0 : kind == "credit" ? 2 : kind == "bytes" ? 3 : 1;
  }
  /// The least is the likeliest cause.
  std::tuple<bool, int, uint32_t, uint32_t> key(size_t i) const {
    return {reached[i].any(), rankOf(edgeOf(*list[i]).kind), list[i]->edge, list[i]->sm};
  }

  const Kernel &kernel;
  std::vector<const FaultRecord *> list;
  std::vector<llvm::BitVector> reached;
};

} // namespace

std::optional<RootFault> rootOf(std::span<const FaultRecord> faults,
                                llvm::function_ref<const Kernel *(uint64_t)> kernelOf) {
  if (faults.empty())
    return std::nullopt;
  // A launch goes on only after the one before.
  uint64_t launch = faults.front().launch;
  for (const FaultRecord &fault : faults)
    launch = std::min(launch, fault.launch);
  std::vector<FaultRecord> own;
  llvm::copy_if(faults, std::back_inserter(own),
                [&](const FaultRecord &fault) { return fault.launch == launch; });
  RootFault root{own.front(), int64_t(faults.size()) - 1};
  if (const Kernel *kernel = kernelOf(launch)) {
    const Waits waits(*kernel, own);
    if (const FaultRecord *found = waits.root())
      root.record = *found;
  }
  return root;
}

} // namespace megalith::runtime
