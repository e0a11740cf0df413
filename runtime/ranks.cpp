//===- ranks.cpp - Running a plan of several ranks ------------------------===//

#include "runtime/ranks.h"

#include "runtime/error.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"

#include <algorithm>
#include <cstring>

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
               .count = t.count};
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
      buffer.bytes = KvLayout{whole.kvHeads, whole.headDim}.pageBytes();
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

  int64_t rank = 0; ///< whose memory is being set up

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
    return backend.allocate(ofRank(name), bytes, space);
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
  FaultRecord *faultAddress() override { return backend.faultAddress(); }
  FaultRecord fault() override { return backend.fault(); }
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
  std::unique_ptr<RankGroup> group(new RankGroup(plan, backend, options, rankOptions));
  if (auto error = group->setUp(folder, openTensor))
    return error;
  return group;
}

llvm::Error RankGroup::setUp(llvm::StringRef folder, const OpenTensor &openTensor) {
  if (plan.tp == 1) {
    auto executor = Executor::create(plan, folder, backend, openTensor, options);
    if (!executor)
      return executor.takeError();
    members.push_back(std::move(*executor));
    return llvm::Error::success();
  }
  Plan device = plan;
  device.sms = plan.sms * plan.tp;
  if (auto error = backend.check(device))
    return error;
  shared = std::make_unique<Shared>(backend, device);
  for (int64_t rank = 0; rank < plan.tp; ++rank) {
    shared->rank = rank;
    auto executor = Executor::create(planOfRank(plan, rank), folder, *shared, openTensor, options);
    if (!executor)
      return problem("rank {0}: {1}", rank, llvm::toString(executor.takeError()));
    members.push_back(std::move(*executor));
  }
  // CTA after CTA, the ranks in turn: neighbours on the GPU are of different ranks.
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
  for (auto &member : members)
    member->restart(launchBase, delaySeed);
}

/// Launch `index` of the ranks from `firstRank` on, one of `launches` each, as one launch.
PreparedLaunch RankGroup::joined(int64_t index, std::span<const PreparedLaunch> launches,
                                 size_t firstRank) {
  const std::vector<std::string> &peers = plan.kernel(plan.launches[size_t(index)].kernel)->peers;
  const size_t ranks = members.size(), held = size_t(kPeerTableOffset) / 8 + ranks * peers.size();
  PreparedLaunch launch = launches.front();
  std::vector<uint64_t> &words = launch.rankArgs;
  words.assign(ranks * held + kRanksTail / 8, 0);
  for (size_t i = 0; i < launches.size(); ++i) {
    uint64_t *own = words.data() + i * held;
    std::memcpy(own, &launches[i].args, sizeof(LaunchArgs));
    own[sizeof(LaunchArgs) / 8] = firstRank + i;
    uint64_t *table = own + kPeerTableOffset / 8;
    for (size_t to = 0; to < ranks; ++to)
      for (const std::string &peer : peers)
        *table++ = llvm::cantFail(members[to]->addressOf(peer)); // bound by this launch
  }
  words[words.size() - 2] = launches.size() > 1 ? places : 0;
  words.back() = rankOptions.hopNs;
  return launch;
}

llvm::Error RankGroup::runLaunches(int64_t first, int64_t count) {
  if (plan.tp == 1)
    return members.front()->runLaunches(first, count);
  std::vector<std::vector<PreparedLaunch>> ofRanks;
  for (auto &member : members) {
    if (auto error = member->checkReady(first, count))
      return error;
    ofRanks.push_back(member->prepareLaunches(first, count));
  }
  if (runsApart()) {
    for (auto [rank, own] : llvm::enumerate(ofRanks))
      for (auto [i, launch] : llvm::enumerate(own))
        launch = joined(first + int64_t(i), {&launch, 1}, rank);
    return explain(backend.runApart(ofRanks, options.chaining));
  }
  std::vector<PreparedLaunch> launches;
  for (int64_t i = 0; i < count; ++i) {
    std::vector<PreparedLaunch> together;
    for (const std::vector<PreparedLaunch> &own : ofRanks)
      together.push_back(own[size_t(i)]);
    launches.push_back(joined(first + i, together, 0));
  }
  return explain(backend.run(launches, options.chaining));
}

/// CTAs are numbered through all ranks.
llvm::Error RankGroup::explain(llvm::Error error) {
  if (!error)
    return error;
  FaultRecord fault = backend.fault();
  const auto sms = uint32_t(plan.sms), tp = uint32_t(plan.tp);
  const uint32_t rank = runsApart() ? fault.sm / sms : fault.sm % tp;
  fault.sm = runsApart() ? fault.sm % sms : fault.sm / tp;
  llvm::Error told = members.front()->explain(std::move(error), fault);
  return fault.valid ? problem("rank {0}: {1}", rank, llvm::toString(std::move(told)))
                     : std::move(told);
}

llvm::Expected<std::vector<std::vector<int32_t>>> RankGroup::generate(int64_t steps) {
  if (plan.tp != 1)
    return problem("steps that feed each other without the host are for one rank yet, and the plan "
                   "is of {0}; set the next step with setStep",
                   plan.tp);
  return members.front()->generate(steps);
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

llvm::Expected<std::vector<unsigned char>> RankGroup::readBuffer(llvm::StringRef name,
                                                                 int64_t layer, int64_t set) {
  auto first = members.front()->readBuffer(name, layer, set);
  if (!first || members.size() == 1)
    return first;
  const Buffer &buffer = *plan.buffer(name), &all = *whole.buffer(name);
  std::vector<unsigned char> bytes(size_t(all.bytes), 0);
  if (buffer.rankParts.empty())
    bytes = *first;
  const int64_t size = elementBytes(buffer.element);
  const int64_t rowBytes = buffer.shape.back() * size, wholeRowBytes = all.shape.back() * size;
  for (size_t rank = 0; rank < members.size(); ++rank) {
    auto own = members[rank]->readBuffer(name, layer, set);
    if (!own)
      return own.takeError();
    if (buffer.rankParts.empty() && *own != bytes)
      return problem("buffer '{0}': rank {1} has other bytes than rank 0, expected the same on all",
                     name, rank);
    for (const RowPart &part : rowParts(buffer, plan.tp))
      for (int64_t row = 0; row < buffer.shape.front(); ++row) {
        unsigned char *to = bytes.data() + row * wholeRowBytes + part.placeOf(int64_t(rank)) * size;
        const unsigned char *from = own->data() + row * rowBytes + part.first * size;
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
  const Buffer *buffer = plan.buffer(name);
  if (!buffer)
    return problem("the plan has no buffer '{0}'", name);
  const Buffer &all = *whole.buffer(name);
  const int64_t size = elementBytes(buffer->element);
  for (size_t rank = 0; rank < members.size(); ++rank) {
    if (buffer->rankParts.empty()) {
      if (auto error = members[rank]->writeBuffer(name, bytes, layer, set))
        return error;
      continue;
    }
    const int64_t rowBytes = buffer->shape.back() * size, wholeRowBytes = all.shape.back() * size;
    const int64_t rows =
        std::min<int64_t>(buffer->shape.front(), int64_t(bytes.size()) / wholeRowBytes);
    std::vector<unsigned char> own(size_t(rows * rowBytes));
    for (const RowPart &part : rowParts(*buffer, plan.tp))
      for (int64_t row = 0; row < rows; ++row)
        std::memcpy(own.data() + row * rowBytes + part.first * size,
                    bytes.data() + row * wholeRowBytes + part.placeOf(int64_t(rank)) * size,
                    size_t(part.own * size));
    if (auto error = members[rank]->writeBuffer(name, own, layer, set))
      return error;
  }
  return llvm::Error::success();
}

llvm::Error RankGroup::resetBuffer(llvm::StringRef name) {
  for (auto &member : members)
    if (auto error = member->resetBuffer(name))
      return error;
  return llvm::Error::success();
}

llvm::Error RankGroup::writeKv(int64_t layer, std::span<const int32_t> pages, int64_t position,
                               std::span<const uint16_t> key, std::span<const uint16_t> value) {
  const size_t width = size_t(plan.kvHeads * plan.headDim);
  for (size_t rank = 0; rank < members.size(); ++rank) {
    const size_t first = rank / size_t(plan.headRanks) * width;
    if (auto error = members[rank]->writeKv(layer, pages, position, key.subspan(first, width),
                                            value.subspan(first, width)))
      return error;
  }
  return llvm::Error::success();
}

llvm::Error RankGroup::readKv(int64_t layer, std::span<const int32_t> pages, int64_t position,
                              std::span<uint16_t> key, std::span<uint16_t> value) {
  const size_t width = size_t(plan.kvHeads * plan.headDim);
  std::vector<uint16_t> ownKey(width), ownValue(width);
  for (size_t rank = 0; rank < members.size(); ++rank) {
    if (auto error = members[rank]->readKv(layer, pages, position, ownKey, ownValue))
      return error;
    auto toKey = key.subspan(rank / size_t(plan.headRanks) * width, width);
    auto toValue = value.subspan(rank / size_t(plan.headRanks) * width, width);
    const bool isCopy = rank % size_t(plan.headRanks) != 0;
    if (isCopy && (!std::ranges::equal(toKey, ownKey) || !std::ranges::equal(toValue, ownValue)))
      return problem("layer {0}, position {1}: ranks {2} and {3} have the same KV heads, but not "
                     "the same bytes",
                     layer, position, rank - 1, rank);
    std::ranges::copy(ownKey, toKey.begin());
    std::ranges::copy(ownValue, toValue.begin());
  }
  return llvm::Error::success();
}

} // namespace megalith::runtime
