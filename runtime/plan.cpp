//===- plan.cpp - Names, validity and files of plans ----------------------===//

#include "runtime/plan.h"

#include "runtime/abi.h"
#include "runtime/error.h"
#include "runtime/packing.h"

#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <bitset>

namespace megalith::runtime {

namespace {

template <typename T> const T *find(const std::vector<T> &list, llvm::StringRef name) {
  auto it =
      std::find_if(list.begin(), list.end(), [&](const T &item) { return item.name == name; });
  return it == list.end() ? nullptr : &*it;
}

/// Adds a name, or complains that it is empty or taken.
llvm::Error claim(llvm::StringSet<> &taken, const char *what, llvm::StringRef name) {
  if (name.empty())
    return problem("a {0} has no name", what);
  if (!taken.insert(name).second)
    return problem("{0} '{1}': the name is used twice", what, name);
  return llvm::Error::success();
}

/// Larger than anything real, small enough that sizes computed from it do not overflow.
constexpr int64_t kMostElements = int64_t(1) << 40;
constexpr int64_t kMostRows = int64_t(1) << 30;

llvm::Error inRange(const char *what, llvm::StringRef name, const char *field, int64_t value,
                    int64_t least, int64_t most) {
  if (value < least)
    return problem("{0} '{1}': {2} is {3}, expected at least {4}", what, name, field, value, least);
  if (value > most)
    return problem("{0} '{1}': {2} is {3}, expected at most {4}", what, name, field, value, most);
  return llvm::Error::success();
}

llvm::Error validateBuffer(const Buffer &buffer) {
  if (auto error = inRange("buffer", buffer.name, "bytes", buffer.bytes, 1, kMostElements))
    return error;
  if (auto error = inRange("buffer", buffer.name, "sets", buffer.sets, 1, 3))
    return error;
  if (buffer.kind == BufferKind::Words) {
    const int64_t sets = buffer.crossing ? 3 : 2;
    if (buffer.sets != sets)
      return problem("buffer '{0}': {1} words have {2} sets, expected {3}", buffer.name,
                     buffer.crossing ? "crossing" : "in-launch", buffer.sets, sets);
    if (buffer.init != BufferInit::Empty)
      return problem("buffer '{0}': words start as '{1}', expected 'empty'", buffer.name,
                     str(buffer.init));
  } else if (buffer.sets != 1) {
    return problem("buffer '{0}': {1} has {2} sets, expected 1", buffer.name, str(buffer.kind),
                   buffer.sets);
  }
  if (buffer.kind == BufferKind::Counter && buffer.init != BufferInit::Zero)
    return problem("buffer '{0}': a counter starts as '{1}', expected 'zero'", buffer.name,
                   str(buffer.init));
  if (buffer.kind == BufferKind::Numbers && buffer.init != BufferInit::Zero)
    return problem("buffer '{0}': numbers start as '{1}', expected 'zero'", buffer.name,
                   str(buffer.init));
  if (buffer.kind == BufferKind::Epoch && buffer.init != BufferInit::Zero)
    return problem("buffer '{0}': an epoch buffer starts as '{1}', expected 'zero' (epoch 0 is no "
                   "launch's)",
                   buffer.name, str(buffer.init));
  if (buffer.bytes % (buffer.kind == BufferKind::Tokens ? 4 : 16))
    return problem("buffer '{0}': {1} bytes, expected a multiple of {2}", buffer.name, buffer.bytes,
                   buffer.kind == BufferKind::Tokens ? 4 : 16);
  int64_t columns = 0;
  for (size_t i = 0; i < buffer.rankParts.size(); ++i) {
    if (auto error = inRange("buffer", buffer.name, "a number of rank_parts", buffer.rankParts[i],
                             1, kMostRows))
      return error;
    columns += i % 2 ? 0 : buffer.rankParts[i];
  }
  if (buffer.rankParts.size() % 2 ||
      (columns && (buffer.shape.empty() || buffer.shape.back() != columns)))
    return problem("buffer '{0}': rank_parts are of {1} columns, expected pairs of those of its "
                   "shape",
                   buffer.name, columns);
  // What is read back.
  int64_t room = buffer.bytes / elementBytes(buffer.element);
  for (int64_t extent : buffer.shape) {
    if (auto error = inRange("buffer", buffer.name, "an extent of its shape", extent, 1, room))
      return error;
    room /= extent;
  }
  return llvm::Error::success();
}

/// Rows and columns of a part after its transforms.
llvm::Error shapeOfPart(const Weight &weight, const WeightPart &part, int64_t &rows,
                        int64_t &columns) {
  auto fail = [&](const char *text, auto... args) {
    return problem("weight '{0}', tensor '{1}': {2}", weight.name, part.tensor,
                   llvm::formatv(text, args...).str());
  };
  if (part.tensor.empty())
    return problem("weight '{0}': a part names no checkpoint tensor", weight.name);
  if (part.shape.empty())
    return fail("no shape");
  rows = 1;
  for (size_t i = 0; i < part.shape.size(); ++i) {
    if (part.shape[i] < 1 || part.shape[i] > kMostRows)
      return fail("dimension {0} is {1}, expected 1..{2}", i, part.shape[i], kMostRows);
    if (i + 1 < part.shape.size())
      rows *= part.shape[i];
    if (rows > kMostRows)
      return fail("more than {0} rows", kMostRows);
  }
  columns = part.shape.back();
  if (weight.perLayer != llvm::StringRef(part.tensor).contains("{layer}"))
    return fail("a {0} weight {1} '{{layer}'", weight.perLayer ? "per-layer" : "model-wide",
                weight.perLayer ? "must contain" : "must not contain");
  for (const Transform &t : part.transforms) {
    const bool columnsOfCodes = weight.isNvfp4() && t.axis == Axis::Columns;
    if (weight.isNvfp4() && t.kind == TransformKind::AddOne)
      return fail("add_one of NVFP4 codes, expected a change of rows or columns only");
    if (columnsOfCodes && t.kind == TransformKind::Pad)
      return fail("pads the columns of NVFP4 codes; packing does that");
    if (columnsOfCodes && t.kind == TransformKind::Slice && (t.first % 16 || t.count % 16))
      return fail("slices {0} columns from {1}, expected whole NVFP4 blocks of 16", t.count,
                  t.first);
    int64_t &extent = t.axis == Axis::Rows ? rows : columns;
    switch (t.kind) {
    case TransformKind::Slice: {
      const int64_t groups = std::max<int64_t>(1, t.groups);
      if (t.groups < 0 || (t.axis == Axis::Columns && groups > 1) || extent % groups)
        return fail("slices of {0} groups do not fit {1} {2}", t.groups, extent, str(t.axis));
      const int64_t whole = extent / groups;
      if (t.first < 0 || t.count < 1 || t.first > whole || t.count > whole - t.first)
        return fail("a slice of {0} from {1} leaves its {2} {3}", t.count, t.first, whole,
                    str(t.axis));
      extent = t.count * groups;
      break;
    }
    case TransformKind::Shard: {
      const int64_t matrices = std::max<int64_t>(1, t.matrices);
      if (t.count < 1 || t.groups < 1 || t.matrices < 0 || extent % matrices ||
          t.count > extent / matrices || (t.axis == Axis::Columns && matrices > 1))
        return fail("a shard of {0} of {1} {2} in {3} matrices for {4} ranks", t.count, extent,
                    str(t.axis), matrices, t.groups);
      extent = t.count * matrices;
      break;
    }
    case TransformKind::Pad:
      if (t.count < extent || t.count > kMostRows)
        return fail("pads {0} {1} to {2}", extent, str(t.axis), t.count);
      extent = t.count;
      break;
    case TransformKind::Permute: {
      std::vector<int64_t> sorted = t.order;
      std::sort(sorted.begin(), sorted.end());
      for (size_t i = 0; i < sorted.size(); ++i)
        if (sorted[i] != int64_t(i))
          return fail("the order is no permutation of 0..{0}", sorted.size() - 1);
      if (sorted.empty() || rows % int64_t(sorted.size()))
        return fail("an order of {0} does not divide {1} rows", sorted.size(), rows);
      break;
    }
    case TransformKind::Interleave:
      if (t.groups < 1 || rows % t.groups)
        return fail("{0} groups do not divide {1} rows", t.groups, rows);
      break;
    case TransformKind::AddOne:
      break;
    case TransformKind::GateAlpha:
    case TransformKind::GateBeta:
      if (!(t.temperature > 0) || !(t.floor >= 0))
        return fail("a gate of temperature {0} and floor {1}, expected positive ones",
                    t.temperature, t.floor);
      if (weight.element != Element::F32)
        return fail("a gate in {0}, expected f32", str(weight.element));
      break;
    }
  }
  return llvm::Error::success();
}

llvm::Error validateWeight(const Weight &weight) {
  if (auto error = inRange("weight", weight.name, "n", weight.n, 1, kMostRows))
    return error;
  if (auto error = inRange("weight", weight.name, "k", weight.k, 1, kMostRows))
    return error;
  if (auto error = inRange("weight", weight.name, "experts", weight.experts, 0, 65536))
    return error;
  if (weight.form == WeightForm::GateUpStrips && weight.element != Element::Bf16)
    return problem("weight '{0}': strips of {1}, expected bf16", weight.name, str(weight.element));
  if (weight.isNvfp4() && weight.k % 16)
    return problem("weight '{0}': NVFP4 rows of k = {1}, expected a multiple of 16", weight.name,
                   weight.k);
  if (weight.element != Element::Bf16 && weight.element != Element::F32)
    return problem("weight '{0}': element {1}, expected bf16 or f32", weight.name,
                   str(weight.element));
  if (weight.form == WeightForm::InverseFrequencies) {
    if (weight.element != Element::F32 || !weight.parts.empty() || weight.theta <= 1 ||
        weight.k % 2)
      return problem("weight '{0}': inverse frequencies need element f32, no parts, an even k and "
                     "theta > 1 (got {1})",
                     weight.name, weight.theta);
    return llvm::Error::success();
  }
  if (weight.parts.empty())
    return problem("weight '{0}': no checkpoint tensor", weight.name);
  if (weight.isGateUp() && weight.parts.size() != 2)
    return problem("weight '{0}': {1} has {2} parts, expected gate and up", weight.name,
                   str(weight.form), weight.parts.size());
  if (weight.form == WeightForm::Vector && weight.n != 1)
    return problem("weight '{0}': a vector with n = {1}, expected 1", weight.name, weight.n);
  int64_t total = 0;
  for (const WeightPart &part : weight.parts) {
    int64_t rows, columns;
    if (auto error = shapeOfPart(weight, part, rows, columns))
      return error;
    // Either one tensor an expert, or one tensor of all experts' rows.
    const bool bank = weight.experts && !llvm::StringRef(part.tensor).contains("{expert}");
    if (bank && rows % weight.experts)
      return problem("weight '{0}', tensor '{1}': {2} rows do not divide by {3} experts",
                     weight.name, part.tensor, rows, weight.experts);
    rows /= bank ? weight.experts : 1;
    if (columns != weight.k)
      return problem("weight '{0}', tensor '{1}': {2} columns, expected k = {3}", weight.name,
                     part.tensor, columns, weight.k);
    if (weight.isGateUp() && rows * 2 != weight.n)
      return problem("weight '{0}', tensor '{1}': {2} rows, expected n / 2 = {3}", weight.name,
                     part.tensor, rows, weight.n / 2);
    total += rows;
  }
  if (total != weight.n)
    return problem("weight '{0}': its parts have {1} rows, expected n = {2}", weight.name, total,
                   weight.n);
  return llvm::Error::success();
}

bool roleFits(const Plan &plan, const SlotBinding &slot) {
  const Buffer *buffer = plan.buffer(slot.name);
  switch (slot.role) {
  case SlotRole::Weights:
    return !buffer;
  case SlotRole::Immutable:
    return !buffer || buffer->kind == BufferKind::Immutable;
  case SlotRole::Exchange:
    return buffer && (buffer->kind == BufferKind::Words || buffer->kind == BufferKind::Epoch ||
                      buffer->kind == BufferKind::Scratch || buffer->kind == BufferKind::Counter ||
                      buffer->kind == BufferKind::Numbers);
  case SlotRole::Kv:
    return buffer && buffer->kind == BufferKind::Kv;
  case SlotRole::Output:
  case SlotRole::Tap:
  case SlotRole::Input:
    return buffer && buffer->kind == BufferKind::Output;
  case SlotRole::Tokens:
    return buffer && buffer->kind == BufferKind::Tokens;
  }
  return false;
}

llvm::Error validateKernel(const Plan &plan, const Kernel &kernel) {
  if (kernel.file.empty())
    return problem("kernel '{0}': no source file", kernel.name);
  if (auto error = inRange("kernel", kernel.name, "threads", kernel.threads, 32, 1024))
    return error;
  if (auto error = inRange("kernel", kernel.name, "smem_bytes", kernel.smemBytes, 0, 1 << 20))
    return error;
  if (auto error = inRange("kernel", kernel.name, "launches", kernel.launches, 0, 4096))
    return error;
  if (auto error = inRange("kernel", kernel.name, "layered", kernel.layered, 0,
                           kernel.launches ? kMaxBuffers : 0))
    return error;
  std::bitset<kMaxBuffers> used;
  for (const SlotBinding &slot : kernel.slots) {
    if (slot.slot < 0 || slot.slot >= kMaxBuffers)
      return problem("kernel '{0}': slot {1} ('{2}'), expected 0..{3}", kernel.name, slot.slot,
                     slot.name, kMaxBuffers - 1);
    if (slot.layerOffset < -1 || slot.layerOffset > 1)
      return problem("kernel '{0}', slot {1}: layer_offset {2}, expected -1, 0 or 1", kernel.name,
                     slot.slot, slot.layerOffset);
    if (slot.first < 0 || slot.first > slot.end || slot.end > kernel.launches)
      return problem("kernel '{0}', slot {1}: launches [{2}, {3}), the kernel loops over {4}",
                     kernel.name, slot.slot, slot.first, slot.end, kernel.launches);
    if (used[slot.slot])
      return problem("kernel '{0}': slot {1} is bound twice", kernel.name, slot.slot);
    used.set(slot.slot);
    if (!plan.buffer(slot.name) && !plan.weight(slot.name))
      return problem("kernel '{0}', slot {1}: no buffer or weight is called '{2}'", kernel.name,
                     slot.slot, slot.name);
    if (!roleFits(plan, slot))
      return problem("kernel '{0}', slot {1}: '{2}' cannot be bound as {3}", kernel.name, slot.slot,
                     slot.name, str(slot.role));
  }
  for (const std::string &peer : kernel.peers)
    if (plan.tp == 1 || !plan.buffer(peer))
      return problem("kernel '{0}': '{1}' is no buffer that ranks exchange", kernel.name, peer);
  if (kernel.trace && used[kTraceBuffer])
    return problem("kernel '{0}' records into slot {1}, which is bound to something else",
                   kernel.name, kTraceBuffer);
  llvm::StringSet<> edges;
  for (size_t i = 0; i < kernel.edges.size(); ++i) {
    if (auto error = claim(edges, "edge", kernel.edges[i].name))
      return error;
    if (kernel.edges[i].id != int64_t(i))
      return problem("kernel '{0}', edge '{1}': id {2}, expected {3} (edges are listed by id)",
                     kernel.name, kernel.edges[i].name, kernel.edges[i].id, i);
  }
  return llvm::Error::success();
}

llvm::Error validateLaunch(const Plan &plan, size_t index) {
  const Launch &launch = plan.launches[index];
  const Kernel *kernel = plan.kernel(launch.kernel);
  if (!kernel)
    return problem("launch {0}: no kernel is called '{1}'", index, launch.kernel);
  const bool isBefore = kernel->launches && index == 0 && launch.layer == -1;
  if (!isBefore && (launch.layer < 0 || launch.layer >= plan.layers))
    return problem("launch {0}: layer {1}, the model has {2}", index, launch.layer, plan.layers);
  for (const SlotBinding &slot : kernel->slots) {
    const Buffer *buffer = plan.buffer(slot.name);
    const bool perLayer = buffer ? buffer->perLayer : plan.weight(slot.name)->perLayer;
    const int64_t layer = launch.layer + slot.layerOffset;
    if (perLayer && kernel->launches && slot.slot >= kernel->layered)
      return problem(
          "kernel '{0}', slot {1}: '{2}' is another in every layer, but only slots below "
          "{3} are bound for each launch",
          kernel->name, slot.slot, slot.name, kernel->layered);
    if (perLayer && slot.isUsedIn(int64_t(index)) && (layer < 0 || layer >= plan.layers))
      return problem("launch {0} ({1}, layer {2}): '{3}' would be of layer {4}, the model has {5}",
                     index, launch.kernel, launch.layer, slot.name, layer, plan.layers);
  }
  return llvm::Error::success();
}

} // namespace

const TraceRole *TraceStage::role(llvm::StringRef name) const {
  for (const TraceRole &role : roles)
    if (role.role == name)
      return &role;
  return nullptr;
}

const Kernel *Plan::kernel(llvm::StringRef name) const {
  return find(kernels, name);
}
const Buffer *Plan::buffer(llvm::StringRef name) const {
  return find(buffers, name);
}
const Weight *Plan::weight(llvm::StringRef name) const {
  return find(weights, name);
}

std::vector<LaunchGroup> Plan::groups() const {
  std::vector<LaunchGroup> groups;
  for (int64_t i = 0; i < int64_t(launches.size()); ++i) {
    const Kernel *launched = kernel(launches[size_t(i)].kernel);
    const bool readsPages =
        launched && std::any_of(launched->slots.begin(), launched->slots.end(),
                                [](const SlotBinding &s) { return s.role == SlotRole::Kv; });
    if (groups.empty() || readsPages)
      groups.push_back({i, 0});
    ++groups.back().count;
  }
  return groups;
}

std::string artifactName(int64_t rows, LaunchMode mode, int64_t tp) {
  return "rows" + std::to_string(rows) + (mode == LaunchMode::Fused ? "" : "-" + str(mode).str()) +
         (tp == 1 ? "" : "-tp" + std::to_string(tp));
}

int64_t elementBytes(Element element) {
  return element == Element::Bf16 ? 2 : element == Element::E4m3 ? 1 : 4;
}

KvLayout kvLayoutOf(const Plan &plan, const Buffer &pages) {
  return {plan.kvHeads, plan.headDim, elementBytes(pages.element)};
}

llvm::Error validate(const Plan &plan) {
  struct Range {
    const char *field;
    int64_t value, least, most;
  };
  const bool hasKv = std::any_of(plan.buffers.begin(), plan.buffers.end(),
                                 [](const Buffer &b) { return b.kind == BufferKind::Kv; });
  for (Range r : {Range{"sms", plan.sms, 1, 4096},
                  {"rows", plan.rows, 1, kMaxRows},
                  {"tp", plan.tp, 1, 1024},
                  {"layers", plan.layers, 1, 65536},
                  {"kv_heads", plan.kvHeads, hasKv, 65536},
                  {"head_ranks", plan.headRanks, 1, plan.tp},
                  {"head_dim", plan.headDim, hasKv, 65536},
                  {"max_positions", plan.maxPositions, hasKv, kMostRows},
                  {"vocab", plan.vocab, 0, kMostRows}})
    if (r.value < r.least || r.value > r.most)
      return problem("{0} is {1}, expected {2}..{3}", r.field, r.value, r.least, r.most);
  if (plan.headDim % 16)
    return problem("head_dim is {0}, expected a multiple of 16", plan.headDim);
  if (plan.weightLayout != kWeightLayoutDigest)
    return problem("weight layout '{0}', this runtime packs '{1}': compile the plan again with "
                   "this version of megalith",
                   plan.weightLayout, kWeightLayoutDigest);
  if (plan.launches.empty())
    return problem("no launches");
  llvm::StringSet<> kernels, names;
  for (const Buffer &buffer : plan.buffers) {
    if (auto error = claim(names, "buffer", buffer.name))
      return error;
    if (auto error = validateBuffer(buffer))
      return error;
    if (buffer.window < 0 || (buffer.window && buffer.kind != BufferKind::Kv))
      return problem("buffer '{0}': a window of {1}, expected one of pages only", buffer.name,
                     buffer.window);
    if (buffer.kind != BufferKind::Kv && buffer.element == Element::E4m3)
      return problem("buffer '{0}': e4m3 numbers, expected those of pages only", buffer.name);
    if (buffer.kind != BufferKind::Kv)
      continue;
    if (buffer.element != Element::Bf16 && buffer.element != Element::E4m3)
      return problem("buffer '{0}': pages of another element, expected bf16 or e4m3", buffer.name);
    if (const int64_t bytes = kvLayoutOf(plan, buffer).pageBytes(); buffer.bytes != bytes)
      return problem("buffer '{0}': a page of {1} bytes, expected {2} for {3} heads of {4}, {5} "
                     "each",
                     buffer.name, buffer.bytes, bytes, plan.kvHeads, plan.headDim,
                     buffer.element == Element::E4m3 ? "a byte" : "two bytes");
  }
  for (const Weight &weight : plan.weights) {
    if (auto error = claim(names, "weight", weight.name))
      return error;
    if (auto error = validateWeight(weight))
      return error;
  }
  for (const Kernel &kernel : plan.kernels) {
    if (auto error = claim(kernels, "kernel", kernel.name))
      return error;
    if (auto error = validateKernel(plan, kernel))
      return error;
  }
  for (const Kernel &kernel : plan.kernels)
    if (kernel.launches) {
      const bool hasAll = std::all_of(plan.launches.begin(), plan.launches.end(),
                                      [&](const Launch &l) { return l.kernel == kernel.name; });
      if (&kernel != &plan.kernels.front() || !hasAll ||
          kernel.launches != int64_t(plan.launches.size()))
        return problem("kernel '{0}' loops over {1} launches; expected the plan's first kernel, "
                       "and all launches of a step, of which there are {2}, to be its",
                       kernel.name, kernel.launches, plan.launches.size());
    }
  for (size_t i = 0; i < plan.launches.size(); ++i)
    if (auto error = validateLaunch(plan, i))
      return error;
  if (!plan.advance.empty() && !plan.kernel(plan.advance))
    return problem("advance: no kernel is called '{0}'", plan.advance);
  return llvm::Error::success();
}

llvm::Expected<Plan> readPlan(llvm::StringRef file) {
  auto buffer = llvm::MemoryBuffer::getFile(file);
  if (!buffer)
    return problem("{0}: {1}; `megalith compile` writes it", file, buffer.getError().message());
  return parsePlan((*buffer)->getBuffer(), file);
}

llvm::Error writePlan(const Plan &plan, llvm::StringRef file) {
  if (auto error = validate(plan))
    return problem("{0} not written: {1}", file, llvm::toString(std::move(error)));
  return llvm::writeToOutput(file, [&](llvm::raw_ostream &os) {
    os << toJson(plan);
    return llvm::Error::success();
  });
}

} // namespace megalith::runtime
