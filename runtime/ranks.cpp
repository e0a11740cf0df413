//===- ranks.cpp - Running a plan of several ranks ------------------------===//

#include "runtime/ranks.h"

#include "runtime/error.h"
#include "runtime/rank_args.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"

#include <algorithm>
#include <cstring>
#include <set>

namespace megalith::runtime {

//===----------------------------------------------------------------------===//
// Plans
//===----------------------------------------------------------------------===//

Plan planOfRank(const Plan &plan, int64_t rank) {
  Plan own = plan;
  for (Weight &weight : own.weights)
    for (WeightPart &part : weight.parts)
      for (Transform &t : part.transforms)
        if (t.kind == TransformKind::Shard)
          t = {.kind = TransformKind::Slice,
               .axis = t.axis,
               .first = rank / t.groups * t.count,
               .count = t.count,
               .groups = t.matrices};
  return own;
}

namespace {

/// A part of a row of which each rank has its own columns.
struct RowPart {
  int64_t own, first;   ///< columns of a rank; where they begin in its row
  int64_t sharing;      ///< ranks that have the same
  int64_t wholeFirst;   ///< where the part begins in the whole row
  int64_t wholeColumns; ///< of the part

  /// Where the rank's columns begin in the whole row.
  int64_t placeOf(int64_t rank) const { return wholeFirst + rank / sharing * own; }
};

std::vector<RowPart> rowParts(const Buffer &buffer, int64_t tp) {
  std::vector<RowPart> parts;
  int64_t first = 0, wholeFirst = 0;
  for (size_t i = 0; i + 1 < buffer.rankParts.size(); i += 2) {
    const int64_t own = buffer.rankParts[i], sharing = buffer.rankParts[i + 1];
    parts.push_back({own, first, sharing, wholeFirst, own * tp / sharing});
    first += own;
    wholeFirst += parts.back().wholeColumns;
  }
  return parts;
}

} // namespace

Plan planOfAll(const Plan &plan) {
  Plan whole = plan;
  if (plan.tp == 1)
    return whole;
  whole.kvHeads = plan.kvHeads * plan.tp / plan.headRanks;
  for (Buffer &buffer : whole.buffers) {
    if (buffer.kind == BufferKind::Kv)
      buffer.bytes = kvLayoutOf(whole, buffer).pageBytes();
    if (buffer.rankParts.empty())
      continue;
    const RowPart last = rowParts(buffer, plan.tp).back();
    buffer.shape.back() = last.wholeFirst + last.wholeColumns;
    const int64_t bytes = buffer.shape.front() * buffer.shape.back() * elementBytes(buffer.element);
    buffer.bytes = (bytes + 15) / 16 * 16;
  }
  return whole;
}

//===----------------------------------------------------------------------===//
// Members
//===----------------------------------------------------------------------===//

/// The backend as members see it: a kernel is loaded once for all, and memory is named by rank.
class RankGroup::Shared final : public Backend {
public:
  Shared(Backend &backend, Plan device) : backend(backend), device(std::move(device)) {}

  int64_t rank = 0;            ///< whose memory is being set up
  std::set<std::string> peers; ///< buffers that other processes map

  llvm::Error check(const Plan &) override { return llvm::Error::success(); }
  llvm::Expected<int> loadKernel(const Plan &, const Kernel &kernel,
                                 llvm::StringRef folder) override {
    if (auto it = loaded.find(kernel.name); it != loaded.end())
      return it->second;
    auto number = backend.loadKernel(device, kernel, folder);
    if (number)
      loaded[kernel.name] = *number;
    return number;
  }
  llvm::Expected<Address> allocate(llvm::StringRef name, int64_t bytes,
                                   BufferSpace space) override {
    return peers.count(name.str()) ? backend.allocateShared(ofRank(name), bytes)
                                   : backend.allocate(ofRank(name), bytes, space);
  }
  llvm::Expected<Address> place(llvm::StringRef name, WeightPacker packer) override {
    return backend.place(ofRank(name), std::move(packer));
  }
  llvm::Error write(Address to, const void *from, int64_t bytes) override {
    return backend.write(to, from, bytes);
  }
  llvm::Error read(void *to, Address from, int64_t bytes) override {
    return backend.read(to, from, bytes);
  }
  llvm::Error fill(Address to, uint32_t word, int64_t bytes) override {
    return backend.fill(to, word, bytes);
  }
  llvm::Error run(std::span<const PreparedLaunch>, Chaining) override {
    return problem("ranks run together, not alone");
  }
  FaultTable *faultAddress() override { return backend.faultAddress(); }
  std::vector<FaultRecord> faults() override { return backend.faults(); }
  bool losesContext() const override { return backend.losesContext(); }

private:
  std::string ofRank(llvm::StringRef name) const {
    return "rank " + std::to_string(rank) + "'s " + name.str();
  }

  Backend &backend;
  Plan device; ///< with the CTAs of all ranks
  llvm::StringMap<int> loaded;
};

RankGroup::RankGroup(const Plan &plan, Backend &backend, const ExecuteOptions &options,
                     const RankOptions &rankOptions)
    : plan(plan), whole(planOfAll(plan)), backend(backend), options(options),
      rankOptions(rankOptions) {}

RankGroup::~RankGroup() = default;

llvm::Expected<std::unique_ptr<RankGroup>>
RankGroup::create(const Plan &plan, llvm::StringRef folder, Backend &backend,
                  const OpenTensor &openTensor, const ExecuteOptions &options,
                  const RankOptions &rankOptions) {
  if (auto error = validate(plan))
    return error;
  ExecuteOptions all = options;
  if (all.launchCount < 0)
    all.launchCount = int64_t(plan.launches.size()) - all.firstLaunch;
  std::unique_ptr<RankGroup> group(new RankGroup(plan, backend, all, rankOptions));
  if (auto error = group->setUp(folder, openTensor))
    return error;
  return group;
}

llvm::Error RankGroup::setUp(llvm::StringRef folder, const OpenTensor &openTensor) {
  Rendezvous *others = rankOptions.others;
  if (others && others->ranks() != plan.tp)
    return problem("{0} processes run a plan of {1} rank{2}; expected as many, which --tp says",
                   others->ranks(), plan.tp, isWhole() ? "" : "s");
  if (isWhole()) {
    auto executor = Executor::create(plan, folder, backend, openTensor, options);
    if (!executor)
      return executor.takeError();
    members.push_back(std::move(*executor));
    return llvm::Error::success();
  }
  if (rankOptions.mirror)
    return setUpMirror(folder, openTensor);
  Plan device = plan;
  device.sms = plan.sms * (others ? 1 : plan.tp);
  if (auto error = backend.check(device))
    return error;
  shared = std::make_unique<Shared>(backend, device);
  if (others)
    for (const Kernel &kernel : plan.kernels)
      shared->peers.insert(kernel.peers.begin(), kernel.peers.end());
  firstRank = others ? others->rank() : 0;
  for (int64_t rank = firstRank; rank < (others ? firstRank + 1 : plan.tp); ++rank)
    if (auto error = setUpRank(rank, folder, openTensor))
      return problem("rank {0}: {1}", rank, llvm::toString(std::move(error)));
  if (auto error = findReplicas())
    return error;
  return others ? llvm::Error::success() : setUpPlaces();
}

llvm::Error RankGroup::setUpMirror(llvm::StringRef folder, const OpenTensor &openTensor) {
  if (rankOptions.others)
    return problem("ranks in processes of their own have real peers, none to mirror");
  ExecuteOptions alone = options;
  alone.mirror = true;
  alone.hopNs = rankOptions.hopNs;
  auto executor = Executor::create(planOfRank(plan, 0), folder, backend, openTensor, alone);
  if (!executor)
    return executor.takeError();
  members.push_back(std::move(*executor));
  return llvm::Error::success();
}

llvm::Error RankGroup::setUpRank(int64_t rank, llvm::StringRef folder,
                                 const OpenTensor &openTensor) {
  shared->rank = rank;
  auto executor = Executor::create(planOfRank(plan, rank), folder, *shared, openTensor, options);
  if (!executor)
    return executor.takeError();
  members.push_back(std::move(*executor));
  return llvm::Error::success();
}

/// Where all ranks have what they exchange.
llvm::Error RankGroup::findReplicas() {
  std::set<std::string> names;
  for (int64_t i = 0; i < options.launchCount; ++i) {
    const Launch &launch = plan.launches[size_t(options.firstLaunch + i)];
    const std::vector<std::string> &peers = plan.kernel(launch.kernel)->peers;
    names.insert(peers.begin(), peers.end());
  }
  for (const std::string &name : names) {
    std::vector<Backend::Address> &of = replicas[name];
    for (auto &member : members) {
      auto address = member->addressOf(name);
      if (!address)
        return address.takeError();
      of.push_back(*address);
    }
    if (!rankOptions.others)
      continue;
    auto handle = backend.share(of.front());
    if (!handle)
      return handle.takeError();
    auto handles = rankOptions.others->gather("memory of " + name, *handle);
    if (!handles)
      return handles.takeError();
    const Backend::Address own = of.front();
    of.clear();
    for (auto [rank, theirs] : llvm::enumerate(*handles)) {
      if (int64_t(rank) == firstRank) {
        of.push_back(own);
        continue;
      }
      auto address = backend.mapShared("rank " + std::to_string(rank) + "'s " + name, theirs);
      if (!address)
        return address.takeError();
      of.push_back(*address);
    }
  }
  return llvm::Error::success();
}

/// CTA after CTA, the ranks in turn: neighbours on the GPU are of different ranks.
llvm::Error RankGroup::setUpPlaces() {
  std::vector<uint32_t> table;
  for (int64_t sm = 0; sm < plan.sms; ++sm)
    for (int64_t rank = 0; rank < plan.tp; ++rank)
      table.push_back(uint32_t(rank << 16 | sm));
  auto address =
      backend.allocate("places of ranks", int64_t(table.size()) * 4, BufferSpace::Device);
  if (!address)
    return address.takeError();
  places = *address;
  return backend.write(places, table.data(), int64_t(table.size()) * 4);
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

llvm::Error RankGroup::setStep(std::span<const StepSequence> sequences) {
  for (auto &member : members)
    if (auto error = member->setStep(sequences))
      return error;
  return llvm::Error::success();
}

llvm::Error RankGroup::finishStep() {
  for (auto &member : members)
    if (auto error = member->finishStep())
      return error;
  return llvm::Error::success();
}

void RankGroup::restart(uint64_t launchBase, uint64_t delaySeed) {
  isFresh = true;
  for (auto &member : members)
    member->restart(launchBase, delaySeed);
}

/// Launch `index` of the ranks from `firstRank` on, one of `launches` each, as one launch.
PreparedLaunch RankGroup::joined(int64_t index, std::span<const PreparedLaunch> launches,
                                 size_t firstRank) {
  PreparedLaunch launch = launches.front();
  std::vector<LaunchArgs> held;
  for (const PreparedLaunch &own : launches)
    held.push_back(own.args);
  launch.rankArgs = packRanksArgs(
      *plan.kernel(plan.launches[size_t(index)].kernel), plan.tp, held, int64_t(firstRank),
      [&](llvm::StringRef peer, int64_t rank) { return replicas[peer][size_t(rank)]; },
      launches.size() > 1 ? places : 0, rankOptions.hopNs);
  return launch;
}

llvm::Error RankGroup::runLaunches(int64_t first, int64_t count) {
  if (isWhole() || rankOptions.mirror)
    return members.front()->runLaunches(first, count);
  for (auto &member : members)
    if (auto error = member->checkReady(first, count))
      return error;
  // Nobody may store to a rank that still sets its memory up.
  if (rankOptions.others && isFresh) {
    if (auto error = backend.settle())
      return error;
    if (auto error = rankOptions.others->meet("start"))
      return error;
  }
  isFresh = false;
  return explain(run(first, count));
}

llvm::Error RankGroup::run(int64_t first, int64_t count) {
  std::vector<std::vector<PreparedLaunch>> ofRanks;
  for (auto &member : members)
    ofRanks.push_back(member->prepareLaunches(first, count));
  if (rankOptions.others || runsApart())
    for (auto [index, own] : llvm::enumerate(ofRanks))
      for (auto [i, launch] : llvm::enumerate(own))
        launch = joined(first + int64_t(i), {&launch, 1}, size_t(firstRank) + index);
  if (rankOptions.others)
    return backend.run(ofRanks.front(), options.chaining);
  if (runsApart())
    return backend.runApart(ofRanks, options.chaining);
  std::vector<PreparedLaunch> launches;
  for (int64_t i = 0; i < count; ++i) {
    std::vector<PreparedLaunch> together;
    for (const std::vector<PreparedLaunch> &own : ofRanks)
      together.push_back(own[size_t(i)]);
    launches.push_back(joined(first + i, together, 0));
  }
  return backend.run(launches, options.chaining);
}

/// CTAs are numbered through all ranks of this process.
llvm::Error RankGroup::explain(llvm::Error error) {
  if (!error)
    return error;
  const std::vector<FaultRecord> faults = backend.faults();
  if (faults.empty() && !rankOptions.others)
    return members.front()->explain(std::move(error), faults);
  const auto sms = uint32_t(plan.sms), tp = uint32_t(plan.tp);
  const bool isRankByRank = rankOptions.others || runsApart();
  int64_t rank = firstRank;
  llvm::Error told =
      members.front()->explain(std::move(error), faults, nullptr, [&](FaultRecord &root) {
        rank = firstRank + (isRankByRank ? root.sm / sms : root.sm % tp);
        root.sm = isRankByRank ? root.sm % sms : root.sm / tp;
      });
  return problem("rank {0}: {1}", rank, llvm::toString(std::move(told)));
}

llvm::Expected<std::vector<std::vector<int32_t>>> RankGroup::generate(int64_t steps) {
  if (!isWhole())
    return problem("steps that feed each other without the host are for one rank yet, and the plan "
                   "is of {0}; set the next step with setStep",
                   plan.tp);
  return members.front()->generate(steps);
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

llvm::Expected<std::vector<std::string>> RankGroup::ofAll(llvm::StringRef what,
                                                          std::vector<std::string> own) {
  if (rankOptions.mirror)
    own.assign(size_t(plan.tp), std::string(own.front()));
  if (!rankOptions.others)
    return own;
  return rankOptions.others->gather(what, own.front());
}

llvm::Expected<std::vector<unsigned char>> RankGroup::readBuffer(llvm::StringRef name,
                                                                 int64_t layer, int64_t set) {
  std::vector<std::string> own;
  for (auto &member : members) {
    auto bytes = member->readBuffer(name, layer, set);
    if (!bytes || isWhole())
      return bytes;
    own.emplace_back(bytes->begin(), bytes->end());
  }
  auto all = ofAll(("reading " + name).str(), std::move(own));
  if (!all)
    return all.takeError();
  const Buffer &buffer = *plan.buffer(name), &wholeBuffer = *whole.buffer(name);
  std::vector<unsigned char> bytes(size_t(wholeBuffer.bytes), 0);
  if (buffer.rankParts.empty())
    bytes.assign(all->front().begin(), all->front().end());
  const int64_t size = elementBytes(buffer.element);
  const int64_t rowBytes = buffer.shape.back() * size;
  const int64_t wholeRowBytes = wholeBuffer.shape.back() * size;
  for (auto [rank, theirs] : llvm::enumerate(*all)) {
    if (buffer.rankParts.empty() && std::memcmp(theirs.data(), bytes.data(), bytes.size()))
      return problem("buffer '{0}': rank {1} has other bytes than rank 0, expected the same on all",
                     name, rank);
    for (const RowPart &part : rowParts(buffer, plan.tp))
      for (int64_t row = 0; row < buffer.shape.front(); ++row) {
        unsigned char *to = bytes.data() + row * wholeRowBytes + part.placeOf(int64_t(rank)) * size;
        const char *from = theirs.data() + row * rowBytes + part.first * size;
        if (rank % size_t(part.sharing) && std::memcmp(to, from, size_t(part.own * size)))
          return problem("buffer '{0}': ranks {1} and {2} have the same columns, but not the same "
                         "bytes, in row {3}",
                         name, rank - 1, rank, row);
        std::memcpy(to, from, size_t(part.own * size));
      }
  }
  return bytes;
}

llvm::Error RankGroup::writeBuffer(llvm::StringRef name, std::span<const unsigned char> bytes,
                                   int64_t layer, int64_t set) {
  isFresh = true;
  const Buffer *buffer = plan.buffer(name);
  if (!buffer)
    return problem("the plan has no buffer '{0}'", name);
  const int64_t size = elementBytes(buffer->element);
  for (auto [index, member] : llvm::enumerate(members)) {
    if (buffer->rankParts.empty()) {
      if (auto error = member->writeBuffer(name, bytes, layer, set))
        return error;
      continue;
    }
    const int64_t rank = firstRank + int64_t(index), rowBytes = buffer->shape.back() * size;
    const int64_t wholeRowBytes = whole.buffer(name)->shape.back() * size;
    const int64_t rows =
        std::min<int64_t>(buffer->shape.front(), int64_t(bytes.size()) / wholeRowBytes);
    std::vector<unsigned char> own(size_t(rows * rowBytes));
    for (const RowPart &part : rowParts(*buffer, plan.tp))
      for (int64_t row = 0; row < rows; ++row)
        std::memcpy(own.data() + row * rowBytes + part.first * size,
                    bytes.data() + row * wholeRowBytes + part.placeOf(rank) * size,
                    size_t(part.own * size));
    if (auto error = member->writeBuffer(name, own, layer, set))
      return error;
  }
  return llvm::Error::success();
}

llvm::Error RankGroup::resetBuffer(llvm::StringRef name) {
  isFresh = true;
  for (auto &member : members)
    if (auto error = member->resetBuffer(name))
      return error;
  return llvm::Error::success();
}

llvm::Error RankGroup::writeKv(int64_t layer, std::span<const int32_t> pages, int64_t position,
                               std::span<const uint16_t> key, std::span<const uint16_t> value) {
  const size_t width = size_t(plan.kvHeads * plan.headDim);
  for (auto [index, member] : llvm::enumerate(members)) {
    const size_t first = size_t((firstRank + int64_t(index)) / plan.headRanks) * width;
    if (auto error = member->writeKv(layer, pages, position, key.subspan(first, width),
                                     value.subspan(first, width)))
      return error;
  }
  return llvm::Error::success();
}

llvm::Error RankGroup::readKv(int64_t layer, std::span<const int32_t> pages, int64_t position,
                              std::span<uint16_t> key, std::span<uint16_t> value) {
  const size_t width = size_t(plan.kvHeads * plan.headDim), bytes = 2 * width;
  std::vector<std::string> own;
  for (auto &member : members) {
    std::vector<uint16_t> both(2 * width); // keys, then values
    if (auto error = member->readKv(layer, pages, position, std::span(both).first(width),
                                    std::span(both).last(width)))
      return error;
    own.emplace_back(reinterpret_cast<const char *>(both.data()), 2 * bytes);
  }
  auto all = ofAll("reading KV", std::move(own));
  if (!all)
    return all.takeError();
  for (auto [rank, theirs] : llvm::enumerate(*all)) {
    const size_t place = rank / size_t(plan.headRanks) * width;
    const bool isCopy = rank % size_t(plan.headRanks) != 0;
    if (isCopy && (std::memcmp(key.data() + place, theirs.data(), bytes) ||
                   std::memcmp(value.data() + place, theirs.data() + bytes, bytes)))
      return problem("layer {0}, position {1}: ranks {2} and {3} have the same KV heads, but not "
                     "the same bytes",
                     layer, position, rank - 1, rank);
    std::memcpy(key.data() + place, theirs.data(), bytes);
    std::memcpy(value.data() + place, theirs.data() + bytes, bytes);
  }
  return llvm::Error::success();
}

} // namespace megalith::runtime
