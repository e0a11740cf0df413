//===- execute.cpp - Setting up and running plans -------------------------===//

#include "runtime/execute.h"

#include "runtime/error.h"
#include "runtime/rank_args.h"

#include <algorithm>
#include <cstring>

namespace megalith::runtime {

Executor::Key Executor::key(const Plan &plan, llvm::StringRef name, int64_t layer) {
  const Buffer *buffer = plan.buffer(name);
  const Weight *weight = buffer ? nullptr : plan.weight(name);
  const bool perLayer = buffer ? buffer->perLayer : weight && weight->perLayer;
  return {name.str(), perLayer ? layer : -1};
}

int64_t Executor::bufferBytes(const Buffer &buffer) const {
  switch (buffer.kind) {
  case BufferKind::Kv:
    if (const int64_t window = ringWindow(buffer))
      return buffer.bytes * ringPages(window) * limits().rings;
    return buffer.bytes * options.poolPages;
  case BufferKind::Tokens:
    return int64_t(sizeof(TokenList)) + buffer.bytes * options.tokenSteps;
  default:
    return buffer.bytes * buffer.sets;
  }
}

bool Executor::isBound(const SlotBinding &slot) const {
  if (slot.role == SlotRole::Tokens)
    return options.tokenSteps > 0;
  return (slot.role != SlotRole::Tap && slot.role != SlotRole::Input) ||
         options.optionalBuffers.count(slot.name);
}

llvm::Expected<std::unique_ptr<Executor>> Executor::create(const Plan &plan, llvm::StringRef folder,
                                                           Backend &backend,
                                                           const OpenTensor &openTensor,
                                                           const ExecuteOptions &options) {
  if (auto error = validate(plan))
    return error;
  ExecuteOptions checked = options;
  const int64_t launches = int64_t(plan.launches.size());
  if (checked.launchCount < 0)
    checked.launchCount = launches - checked.firstLaunch;
  if (checked.firstLaunch < 0 || checked.launchCount < 1 ||
      checked.firstLaunch + checked.launchCount > launches)
    return problem("launches [{0}, {1}) were asked for, the plan has {2}", checked.firstLaunch,
                   checked.firstLaunch + checked.launchCount, launches);
  if (checked.tokenSteps < 0 || (checked.tokenSteps && plan.advance.empty()))
    return problem("tokens of {0} steps are to be kept, but {1}", checked.tokenSteps,
                   checked.tokenSteps < 0 ? "expected 0 or more"
                                          : "the plan has no kernel that chooses them: compile it "
                                            "again with this version of megalith");
  if (checked.maxPages < 1 || checked.poolPages < 1)
    return problem("{0} pages a sequence and {1} in a pool, expected at least 1", checked.maxPages,
                   checked.poolPages);
  for (const std::string &name : checked.optionalBuffers)
    if (!plan.buffer(name))
      return problem("the plan has no buffer '{0}'; was it compiled with this tap?", name);
  if (checked.mirror)
    if (auto error = checkMirror(plan))
      return error;
  if (auto error = backend.check(plan))
    return error;
  std::unique_ptr<Executor> executor(new Executor(plan, backend, checked));
  if (auto error = executor->setUp(folder, openTensor))
    return error;
  return executor;
}

llvm::Error Executor::setUp(llvm::StringRef folder, const OpenTensor &openTensor) {
  step.descriptor.launch_base = options.launchBase;
  for (int64_t i = options.firstLaunch; i < options.firstLaunch + options.launchCount; ++i)
    if (auto error = setUpLaunch(plan.launches[i], i, folder, openTensor))
      return error;
  // What moves whole steps on has no place between some launches of a step.
  if (!plan.advance.empty() && options.launchCount == int64_t(plan.launches.size()))
    if (auto error = setUpLaunch({plan.advance, 0}, 0, folder, openTensor))
      return error;
  if (auto error = setUpRecords())
    return error;
  auto descriptorAt =
      backend.allocate("step descriptor", sizeof(StepDescriptor), BufferSpace::Device);
  if (!descriptorAt)
    return descriptorAt.takeError();
  descriptor = *descriptorAt;
  auto tableAt =
      backend.allocate("page table", kMaxRows * options.maxPages * 4, BufferSpace::Device);
  if (!tableAt)
    return tableAt.takeError();
  pageTable = *tableAt;
  for (const Buffer &buffer : plan.buffers)
    if (const int64_t window = ringWindow(buffer); window && !ringTables.count(window)) {
      auto address = backend.allocate("page table of window " + std::to_string(window),
                                      kMaxRows * options.maxPages * 4, BufferSpace::Device);
      if (!address)
        return address.takeError();
      ringTables[window] = *address;
    }
  return llvm::Error::success();
}

llvm::Error Executor::setUpLaunch(const Launch &launch, int64_t index, llvm::StringRef folder,
                                  const OpenTensor &openTensor) {
  const Kernel &kernel = *plan.kernel(launch.kernel);
  if (!kernels.count(kernel.name)) {
    auto number = backend.loadKernel(plan, kernel, folder);
    if (!number)
      return number.takeError();
    kernels[kernel.name] = *number;
  }
  for (const SlotBinding &slot : kernel.slots)
    if (isBound(slot) && slot.isUsedIn(index))
      if (auto error = setUpSlot(slot, launch.layer + slot.layerOffset, openTensor))
        return error;
  return llvm::Error::success();
}

// Kernels that record do so whether anybody wants to read it or not.
llvm::Error Executor::setUpRecords() {
  int64_t bytes = 0;
  for (const Kernel &kernel : plan.kernels)
    if (kernel.trace)
      bytes = std::max(bytes, traceBytes(*kernel.trace, plan.sms));
  if (options.traced && !bytes)
    return problem("the plan's kernels record nothing; compile with --trace");
  for (int64_t i = 0; bytes && i < std::max<int64_t>(options.traced, 1); ++i) {
    auto address =
        backend.allocate("record[" + std::to_string(i) + "]", bytes, BufferSpace::Device);
    if (!address)
      return address.takeError();
    records.push_back(*address);
    if (auto error = backend.fill(*address, 0, bytes))
      return error;
  }
  return llvm::Error::success();
}

llvm::Expected<LaunchRecord> Executor::readTrace(int64_t index, uint64_t number) {
  if (index < 0 || index >= int64_t(plan.launches.size()))
    return problem("launch {0}, expected 0 to {1}", index, plan.launches.size() - 1);
  const Kernel &kernel = *plan.kernel(plan.launches[size_t(index)].kernel);
  if (!kernel.trace)
    return problem("launch {0}: kernel {1} records nothing; compile with --trace", index,
                   kernel.name);
  LaunchRecord record{.launch = index, .number = number};
  record.bytes.resize(size_t(traceBytes(*kernel.trace, plan.sms)));
  if (auto error = backend.read(record.bytes.data(), records[size_t(index) % records.size()],
                                int64_t(record.bytes.size())))
    return error;
  return record;
}

llvm::Error Executor::setUpSlot(const SlotBinding &slot, int64_t layer,
                                const OpenTensor &openTensor) {
  const Key which = key(plan, slot.name, layer);
  if (addresses.count(which))
    return llvm::Error::success();
  const std::string label =
      which.second < 0 ? slot.name : slot.name + "[" + std::to_string(layer) + "]";
  if (const Buffer *buffer = plan.buffer(slot.name)) {
    auto address = backend.allocate(label, bufferBytes(*buffer), buffer->space);
    if (!address)
      return address.takeError();
    addresses[which] = *address;
    return initialise(*buffer, *address);
  }
  auto packer = WeightPacker::open(*plan.weight(slot.name), layer, openTensor);
  if (!packer)
    return packer.takeError();
  auto address = backend.place(label, std::move(*packer));
  if (!address)
    return address.takeError();
  addresses[which] = *address;
  return llvm::Error::success();
}

llvm::Error Executor::initialise(const Buffer &buffer, Address address) {
  // What the host loads is poisoned first, so that a forgotten load is noticed.
  const uint32_t word = buffer.kind == BufferKind::Numbers ? uint32_t(launchBase())
                        : buffer.init == BufferInit::Empty ? kEmptyWord
                        : buffer.init == BufferInit::Zero  ? 0
                                                           : kPoisonWord;
  return backend.fill(address, word, bufferBytes(buffer));
}

StepLimits Executor::limits() const {
  StepLimits limits = {.rows = plan.rows,
                       .maxPages = options.maxPages,
                       .poolPages = options.poolPages,
                       .maxPositions = plan.maxPositions,
                       .vocab = plan.vocab,
                       .rings = options.rings ? options.rings : plan.rows};
  for (const Buffer &buffer : plan.buffers)
    if (const int64_t window = ringWindow(buffer))
      limits.windows.push_back({window, ringPages(window)});
  return limits;
}

llvm::Error Executor::setStep(std::span<const StepSequence> sequences) {
  auto built = buildStep(sequences, limits());
  if (!built)
    return built.takeError();
  built->descriptor.launch_base = launchBase();
  step = std::move(*built);
  hasStep = true;
  return upload();
}

llvm::Error Executor::upload() {
  if (auto error = backend.write(descriptor, &step.descriptor, sizeof(StepDescriptor)))
    return error;
  for (const auto &[window, address] : ringTables) {
    const std::vector<int32_t> table = step.ringTable(window, options.maxPages);
    if (auto error = backend.write(address, table.data(), int64_t(table.size()) * 4))
      return error;
  }
  return backend.write(pageTable, step.pageTable.data(), int64_t(step.pageTable.size()) * 4);
}

PreparedLaunch Executor::prepare(int64_t index) const {
  const Launch &launch = plan.launches[index];
  return prepare(*plan.kernel(launch.kernel), launch.layer, index);
}

PreparedLaunch Executor::prepare(const Kernel &kernel, int64_t layer, int64_t index) const {
  PreparedLaunch prepared;
  prepared.kernel = kernels.lookup(kernel.name);
  LaunchArgs &args = prepared.args;
  args.step = reinterpret_cast<const StepDescriptor *>(descriptor);
  const Buffer *pages = kvBuffer(kernel);
  const int64_t window = pages ? ringWindow(*pages) : 0;
  args.page_table = reinterpret_cast<const int32_t *>(window ? ringTables.at(window) : pageTable);
  args.max_pages = int32_t(options.maxPages);
  args.layer = int32_t(layer);
  args.launch_in_step = uint32_t(index);
  args.flags = options.flags;
  args.deadline_ns = options.deadlineNs;
  args.delay_seed = options.delaySeed;
  args.fault = backend.faultAddress();
  for (const SlotBinding &slot : kernel.slots)
    if (isBound(slot) && slot.isUsedIn(index) && slot.slot >= kernel.layered)
      args.buffer[slot.slot] =
          reinterpret_cast<void *>(addresses.at(key(plan, slot.name, layer + slot.layerOffset)));
  if (kernel.trace)
    args.buffer[kTraceBuffer] = reinterpret_cast<void *>(records[size_t(index) % records.size()]);
  if (options.mirror && !kernel.peers.empty())
    prepared.rankArgs = packRanksArgs(
        kernel, plan.tp, {&args, 1}, 0,
        [&](llvm::StringRef peer, int64_t rank) {
          return mirrorOf(*plan.buffer(peer), addresses.at(key(plan, peer, -1)), rank, plan.tp);
        },
        0, options.hopNs);
  return prepared;
}

/// Launches [first, first + count) as turns of a looping kernel.
PreparedLaunch Executor::prepareLoop(const Kernel &kernel, int64_t first, int64_t count) const {
  PreparedLaunch prepared = prepare(first);
  // What only later launches use.
  for (int64_t i = first; i < first + count; ++i)
    for (const SlotBinding &slot : kernel.slots)
      if (isBound(slot) && slot.isUsedIn(i) && slot.slot >= kernel.layered)
        prepared.args.buffer[slot.slot] = reinterpret_cast<void *>(
            addresses.at(key(plan, slot.name, plan.launches[i].layer + slot.layerOffset)));
  std::vector<uint64_t> &words = prepared.stepArgs;
  words.assign(size_t(kStepTableOffset / 8 + kernel.launches * kernel.layered), 0);
  std::memcpy(words.data(), &prepared.args, sizeof(LaunchArgs));
  words[sizeof(LaunchArgs) / 8] = uint64_t(first + count);
  for (int64_t i = first; i < first + count; ++i)
    for (const SlotBinding &slot : kernel.slots)
      if (isBound(slot) && slot.isUsedIn(i) && slot.slot < kernel.layered)
        words[size_t(kStepTableOffset / 8 + i * kernel.layered + slot.slot)] =
            addresses.at(key(plan, slot.name, plan.launches[i].layer + slot.layerOffset));
  return prepared;
}

std::vector<PreparedLaunch> Executor::prepareLaunches(int64_t first, int64_t count) const {
  if (const Kernel *loop = plan.loopingKernel())
    return {prepareLoop(*loop, first, count)};
  std::vector<PreparedLaunch> launches;
  for (int64_t i = first; i < first + count; ++i)
    launches.push_back(prepare(i));
  return launches;
}

llvm::Error Executor::checkReady(int64_t first, int64_t count) const {
  if (lost)
    return problem("the GPU context was lost by an earlier fault: start again");
  if (!hasStep)
    return problem("no step: say what to compute with setStep first");
  if (first < options.firstLaunch || count < 1 ||
      first + count > options.firstLaunch + options.launchCount)
    return problem("launches [{0}, {1}) are not set up, [{2}, {3}) are", first, first + count,
                   options.firstLaunch, options.firstLaunch + options.launchCount);
  return llvm::Error::success();
}

llvm::Error Executor::runLaunches(int64_t first, int64_t count) {
  if (auto error = checkReady(first, count))
    return error;
  if (auto error = setCounters(first))
    return error;
  return explain(backend.run(prepareLaunches(first, count), options.chaining));
}

llvm::Error Executor::explain(llvm::Error error, std::span<const FaultRecord> faults,
                              const std::function<int64_t(uint64_t)> &launchOf,
                              const std::function<void(FaultRecord &)> &place) {
  if (!error)
    return error;
  lost = backend.losesContext();
  // Launches of later steps have later numbers.
  auto indexOf = [&](uint64_t launch) {
    const uint64_t passed = launch - launchBase();
    return launchOf ? launchOf(passed) : int64_t(passed % plan.launches.size());
  };
  auto root = rootOf(faults, [&](uint64_t launch) -> const Kernel * {
    const int64_t index = indexOf(launch);
    return index >= 0 && index < int64_t(plan.launches.size())
               ? plan.kernel(plan.launches[size_t(index)].kernel)
               : nullptr;
  });
  if (!root)
    return error;
  if (place)
    place(root->record);
  return describeFault(*root, indexOf(root->record.launch), std::move(error));
}

/// What a looping kernel's counters hold when all launches before `first` are over, although
/// launches may have been left out.
llvm::Error Executor::setCounters(int64_t first) {
  for (const Buffer &buffer : plan.buffers)
    if (auto it = addresses.find(key(plan, buffer.name, -1));
        buffer.kind == BufferKind::Counter && it != addresses.end())
      if (auto error = backend.fill(it->second, uint32_t(plan.sms * launchNumber(first)),
                                    bufferBytes(buffer)))
        return error;
  return llvm::Error::success();
}

llvm::Error Executor::runStep() {
  if (auto error = runLaunches(0, int64_t(plan.launches.size())))
    return error;
  return finishStep();
}

llvm::Error Executor::finishStep() {
  step.descriptor.launch_base += plan.launches.size();
  return upload();
}

PreparedLaunch Executor::prepareAdvance(int64_t launches, bool feedback) const {
  PreparedLaunch advance = prepare(*plan.kernel(plan.advance), 0, launches);
  if (feedback)
    advance.args.flags |= kFeedback;
  return advance;
}

llvm::Expected<std::vector<std::vector<int32_t>>> Executor::generate(int64_t steps) {
  if (lost)
    return problem("the GPU context was lost by an earlier fault: start again");
  if (!hasStep)
    return problem("no step: say what to compute with setStep first");
  if (plan.tp > 1)
    return problem("steps that feed each other without the host are for one rank yet, and the plan "
                   "is of {0}; set the next step with setStep",
                   plan.tp);
  if (steps < 1 || steps > options.tokenSteps)
    return problem("tokens of {0} steps are to be generated, expected 1 to {1}, for which the "
                   "executor was set up (tokenSteps)",
                   steps, options.tokenSteps);
  if (!hasAdvance())
    return problem("some launches of a step are set up, not all {0}: they choose no tokens",
                   plan.launches.size());
  if (auto error = checkFurtherSteps(step, limits(), steps - 1))
    return error;
  const Buffer *buffer = nullptr; // of the list
  for (const SlotBinding &slot : plan.kernel(plan.advance)->slots)
    if (slot.role == SlotRole::Tokens)
      buffer = plan.buffer(slot.name);
  const Address list = addresses.at(key(plan, buffer->name, 0));
  const TokenList head = {.steps = 0, .capacity = int32_t(options.tokenSteps)};
  if (auto error = backend.fill(list, ~0u, bufferBytes(*buffer)))
    return error;
  if (auto error = backend.write(list, &head, sizeof head))
    return error;

  const StepDescriptor first = step.descriptor;
  std::vector<PreparedLaunch> launches = prepareLaunches(0, int64_t(plan.launches.size()));
  launches.push_back(prepareAdvance(int64_t(plan.launches.size()), /*feedback=*/true));
  if (auto error = setCounters(0))
    return error;
  if (auto error = explain(backend.repeat(launches, options.chaining, steps)))
    return error;
  if (auto error = followDevice())
    return error;

  std::vector<int32_t> rows(static_cast<size_t>(steps * plan.rows));
  if (auto error = backend.read(rows.data(), list + sizeof head, int64_t(rows.size()) * 4))
    return error;
  std::vector<std::vector<int32_t>> tokens(static_cast<size_t>(steps));
  for (size_t s = 0; s < tokens.size(); ++s)
    for (int32_t q = 0; q < first.sequences; ++q)
      tokens[s].push_back(rows[s * size_t(plan.rows) + size_t(first.seq[q].first_row)]);
  return tokens;
}

llvm::Error Executor::followDevice() {
  return backend.read(&step.descriptor, descriptor, sizeof(StepDescriptor));
}

void Executor::restart(uint64_t launchBase, uint64_t delaySeed) {
  step.descriptor.launch_base = launchBase;
  options.delaySeed = delaySeed;
  hasStep = false;
}

llvm::Error Executor::describeFault(const RootFault &root, int64_t index, llvm::Error cause) const {
  const FaultRecord &fault = root.record;
  std::string who = llvm::formatv("launch {0}", fault.launch).str();
  std::string edgeName = llvm::formatv("edge {0}", fault.edge).str();
  if (index >= 0 && index < int64_t(plan.launches.size())) {
    const Launch &launch = plan.launches[index];
    const Kernel &kernel = *plan.kernel(launch.kernel);
    who += llvm::formatv(" (kernel {0}, layer {1})", kernel.name, launch.layer).str();
    if (fault.edge < kernel.edges.size()) {
      const Edge &edge = kernel.edges[fault.edge];
      edgeName += llvm::formatv(" '{0}' ({1} -> {2})", edge.name, edge.from, edge.to).str();
    }
  }
  const std::string others =
      root.others == 0 ? "" : llvm::formatv("; so did {0} more warps", root.others).str();
  return problem("{0}: SM {1}, warp {2} waited longer than {3} ms for {4}: expected {5}, saw {6}"
                 "{7}; {8}",
                 who, fault.sm, fault.warp, options.deadlineNs / 1'000'000, edgeName,
                 fault.expected, fault.seen, others, llvm::toString(std::move(cause)));
}

llvm::Expected<Executor::Address> Executor::locate(llvm::StringRef name, int64_t layer, int64_t set,
                                                   int64_t bytes) {
  const Buffer *buffer = plan.buffer(name);
  if (!buffer)
    return problem("the plan has no buffer '{0}'", name);
  auto it = addresses.find(key(plan, name, layer));
  if (it == addresses.end())
    return problem("buffer '{0}' of layer {1} is not set up: none of the launches binds it", name,
                   layer);
  const int64_t sets = bufferBytes(*buffer) / buffer->bytes;
  if (set < 0 || set >= sets || bytes > buffer->bytes)
    return problem("buffer '{0}': set {1} of {2}, {3} of its {4} bytes", name, set, sets, bytes,
                   buffer->bytes);
  return it->second + uint64_t(set * buffer->bytes);
}

llvm::Expected<std::vector<unsigned char>> Executor::readBuffer(llvm::StringRef name, int64_t layer,
                                                                int64_t set) {
  auto address = locate(name, layer, set, 0);
  if (!address)
    return address.takeError();
  std::vector<unsigned char> bytes(plan.buffer(name)->bytes);
  if (auto error = backend.read(bytes.data(), *address, int64_t(bytes.size())))
    return error;
  return bytes;
}

llvm::Error Executor::writeBuffer(llvm::StringRef name, std::span<const unsigned char> bytes,
                                  int64_t layer, int64_t set) {
  auto address = locate(name, layer, set, int64_t(bytes.size()));
  if (!address)
    return address.takeError();
  return backend.write(*address, bytes.data(), int64_t(bytes.size()));
}

llvm::Expected<std::vector<unsigned char>> Executor::readVector(llvm::StringRef name,
                                                                int64_t layer) {
  const Weight *weight = plan.weight(name);
  if (!weight || weight->form != WeightForm::Vector)
    return problem("the plan has no vector '{0}'", name);
  auto it = addresses.find(key(plan, name, layer));
  if (it == addresses.end())
    return problem("vector '{0}' of layer {1} is not set up: none of the launches binds it", name,
                   layer);
  std::vector<unsigned char> bytes(size_t(weight->k * elementBytes(weight->element)));
  if (auto error = backend.read(bytes.data(), it->second, int64_t(bytes.size())))
    return error;
  return bytes;
}

llvm::Error Executor::resetBuffer(llvm::StringRef name) {
  const Buffer *buffer = plan.buffer(name);
  if (!buffer)
    return problem("the plan has no buffer '{0}'", name);
  for (const auto &[which, address] : addresses)
    if (which.first == name)
      if (auto error = initialise(*buffer, address))
        return error;
  return llvm::Error::success();
}

/// The pages that a kernel's attention reads; of a looping kernel, of any of its layers.
const Buffer *Executor::kvBuffer(const Kernel &kernel) const {
  for (const SlotBinding &slot : kernel.slots)
    if (slot.role == SlotRole::Kv)
      return plan.buffer(slot.name);
  return nullptr;
}

const Buffer *Executor::kvBuffer(int64_t layer) const {
  for (size_t i = 0; i < plan.launches.size(); ++i)
    for (const SlotBinding &slot : plan.kernel(plan.launches[i].kernel)->slots)
      if (slot.role == SlotRole::Kv && slot.isUsedIn(int64_t(i)) &&
          plan.launches[i].layer + slot.layerOffset == layer)
        return plan.buffer(slot.name);
  return nullptr;
}

std::vector<int32_t> Executor::kvPages(int64_t layer, const StepSequence &sequence,
                                       int64_t index) const {
  const Buffer *buffer = kvBuffer(layer);
  const int64_t window = buffer ? ringWindow(*buffer) : 0;
  if (!window)
    return sequence.pages;
  return ringPagesOf(sequence.ring < 0 ? int32_t(index) : sequence.ring, window, options.maxPages);
}

llvm::Error Executor::writeKv(int64_t layer, std::span<const int32_t> pages, int64_t position,
                              std::span<const uint16_t> key, std::span<const uint16_t> value) {
  const Buffer *buffer = kvBuffer(layer);
  if (!buffer)
    return problem("the plan has no KV pages of layer {0}", layer);
  const int32_t page = pages[position / kPagePositions];
  auto bytes = readBuffer(buffer->name, layer, page);
  if (!bytes)
    return bytes.takeError();
  const int32_t first[] = {0};
  runtime::writeKv(kvLayoutOf(plan, *buffer), bytes->data(), first, position % kPagePositions, key,
                   value);
  return writeBuffer(buffer->name, *bytes, layer, page);
}

llvm::Error Executor::readKv(int64_t layer, std::span<const int32_t> pages, int64_t position,
                             std::span<uint16_t> key, std::span<uint16_t> value) {
  const Buffer *buffer = kvBuffer(layer);
  if (!buffer)
    return problem("the plan has no KV pages of layer {0}", layer);
  auto bytes = readBuffer(buffer->name, layer, pages[position / kPagePositions]);
  if (!bytes)
    return bytes.takeError();
  const int32_t first[] = {0};
  runtime::readKv(kvLayoutOf(plan, *buffer), bytes->data(), first, position % kPagePositions, key,
                  value);
  return llvm::Error::success();
}

} // namespace megalith::runtime
