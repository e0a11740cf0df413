//===- plan_json.cpp - plan.json, read and written ------------------------===//
//
// Writing and reading mention each field once, in the same order. Reading takes every key out of
// its object and complains about what is left over, so that a misspelt optional field is noticed.
//
//===----------------------------------------------------------------------===//

#include "runtime/error.h"
#include "runtime/json_text.h"
#include "runtime/plan.h"

#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <optional>

namespace megalith::runtime {

namespace {

template <typename E> struct Spelling {
  E value;
  llvm::StringLiteral text;
};

constexpr Spelling<SlotRole> kSlotRoles[] = {
    {SlotRole::Weights, "weights"},   {SlotRole::Immutable, "immutable"},
    {SlotRole::Exchange, "exchange"}, {SlotRole::Kv, "kv"},
    {SlotRole::Output, "output"},     {SlotRole::Tap, "tap"},
    {SlotRole::Input, "input"},       {SlotRole::Tokens, "tokens"}};
constexpr Spelling<BufferSpace> kSpaces[] = {{BufferSpace::Device, "device"},
                                             {BufferSpace::Pinned, "pinned"}};
constexpr Spelling<BufferKind> kBufferKinds[] = {
    {BufferKind::Words, "words"},     {BufferKind::Epoch, "epoch"},
    {BufferKind::Kv, "kv"},           {BufferKind::Output, "output"},
    {BufferKind::Scratch, "scratch"}, {BufferKind::Counter, "counter"},
    {BufferKind::Tokens, "tokens"},   {BufferKind::Immutable, "immutable"},
    {BufferKind::Numbers, "numbers"}};
constexpr Spelling<BufferInit> kInits[] = {{BufferInit::Empty, "empty"},
                                           {BufferInit::Poison, "poison"},
                                           {BufferInit::Zero, "zero"},
                                           {BufferInit::Load, "load"}};
constexpr Spelling<Element> kElements[] = {{Element::Bf16, "bf16"},
                                           {Element::F32, "f32"},
                                           {Element::I32, "i32"},
                                           {Element::U32, "u32"},
                                           {Element::E4m3, "e4m3"}};
constexpr Spelling<WeightForm> kForms[] = {{WeightForm::Strips, "strips"},
                                           {WeightForm::GateUpStrips, "gate_up_strips"},
                                           {WeightForm::Nvfp4, "nvfp4"},
                                           {WeightForm::GateUpNvfp4, "gate_up_nvfp4"},
                                           {WeightForm::Vector, "vector"},
                                           {WeightForm::Table, "table"},
                                           {WeightForm::InverseFrequencies, "inverse_frequencies"}};
constexpr Spelling<TransformKind> kTransforms[] = {{TransformKind::Slice, "slice"},
                                                   {TransformKind::Permute, "permute"},
                                                   {TransformKind::Interleave, "interleave"},
                                                   {TransformKind::AddOne, "add1"},
                                                   {TransformKind::GateAlpha, "gate_alpha"},
                                                   {TransformKind::GateBeta, "gate_beta"},
                                                   {TransformKind::Pad, "pad"},
                                                   {TransformKind::Shard, "shard"}};
constexpr Spelling<Axis> kAxes[] = {{Axis::Rows, "rows"}, {Axis::Columns, "columns"}};

constexpr Spelling<LaunchMode> kLaunchModes[] = {
    {LaunchMode::Fused, "fused"}, {LaunchMode::PerStage, "per-stage"}, {LaunchMode::Step, "step"}};

constexpr auto &spellings(SlotRole) {
  return kSlotRoles;
}
constexpr auto &spellings(BufferSpace) {
  return kSpaces;
}
constexpr auto &spellings(BufferKind) {
  return kBufferKinds;
}
constexpr auto &spellings(BufferInit) {
  return kInits;
}
constexpr auto &spellings(Element) {
  return kElements;
}
constexpr auto &spellings(WeightForm) {
  return kForms;
}
constexpr auto &spellings(TransformKind) {
  return kTransforms;
}
constexpr auto &spellings(Axis) {
  return kAxes;
}
constexpr auto &spellings(LaunchMode) {
  return kLaunchModes;
}

template <typename E> llvm::StringRef spell(E value) {
  for (const auto &s : spellings(value))
    if (s.value == value)
      return s.text;
  return "?";
}

//===----------------------------------------------------------------------===//
// Writing and reading share one description of each struct: fields(io, struct).
//===----------------------------------------------------------------------===//

template <typename IO> void fields(IO &io, SlotBinding &slot) {
  io.field("slot", slot.slot);
  io.field("name", slot.name);
  io.field("role", slot.role);
  io.optional("layer_offset", slot.layerOffset);
  io.optional("first", slot.first);
  io.optional("end", slot.end);
}

template <typename IO> void fields(IO &io, Edge &edge) {
  io.field("id", edge.id);
  io.field("name", edge.name);
  io.optional("from", edge.from);
  io.optional("to", edge.to);
  io.optional("kind", edge.kind);
  io.optional("after", edge.after);
}

template <typename IO> void fields(IO &io, KernelResources &resources) {
  io.field("registers", resources.registers);
  io.field("spill_bytes", resources.spillBytes);
  io.field("stack_bytes", resources.stackBytes);
  io.field("static_smem_bytes", resources.staticSmemBytes);
  io.field("code_bytes", resources.codeBytes);
}

template <typename IO> void fields(IO &io, TraceRole &role) {
  io.field("role", role.role);
  io.optional("waits", role.waits);
}

template <typename IO> void fields(IO &io, TraceStage &stage) {
  io.field("name", stage.name);
  io.field("sms", stage.sms);
  io.field("roles", stage.roles);
}

template <typename IO> void fields(IO &io, TraceHop &hop) {
  io.field("edge", hop.edge);
  io.field("from", hop.from);
  io.field("to", hop.to);
  io.optional("previous", hop.previous);
  io.optional("pieces", hop.pieces);
}

template <typename IO> void fields(IO &io, KernelTrace &trace) {
  io.field("stages", trace.stages);
  io.optional("hops", trace.hops);
}

template <typename IO> void fields(IO &io, Kernel &kernel) {
  io.field("name", kernel.name);
  io.field("file", kernel.file);
  io.optional("cubin", kernel.cubin);
  io.optional("cubin_digest", kernel.cubinDigest);
  io.field("smem_bytes", kernel.smemBytes);
  io.field("threads", kernel.threads);
  io.optional("launches", kernel.launches);
  io.optional("layered", kernel.layered);
  io.optional("peers", kernel.peers);
  io.field("slots", kernel.slots);
  io.optional("edges", kernel.edges);
  io.optional("resources", kernel.resources);
  io.optional("trace", kernel.trace);
}

template <typename IO> void fields(IO &io, Buffer &buffer) {
  io.field("name", buffer.name);
  io.optional("space", buffer.space);
  io.field("kind", buffer.kind);
  io.field("bytes", buffer.bytes);
  io.field("sets", buffer.sets);
  io.optional("crossing", buffer.crossing);
  io.optional("per_layer", buffer.perLayer);
  io.optional("window", buffer.window);
  io.field("init", buffer.init);
  io.field("element", buffer.element);
  io.optional("shape", buffer.shape);
  io.optional("rank_parts", buffer.rankParts);
}

template <typename IO> void fields(IO &io, Transform &transform) {
  io.field("kind", transform.kind);
  io.optional("axis", transform.axis);
  io.optional("first", transform.first);
  io.optional("count", transform.count);
  io.optional("groups", transform.groups);
  io.optional("matrices", transform.matrices);
  io.optional("order", transform.order);
  io.optional("temperature", transform.temperature);
  io.optional("floor", transform.floor);
}

template <typename IO> void fields(IO &io, WeightPart &part) {
  io.field("tensor", part.tensor);
  io.field("shape", part.shape);
  io.optional("gain", part.gain);
  io.optional("transforms", part.transforms);
}

template <typename IO> void fields(IO &io, Weight &weight) {
  io.field("name", weight.name);
  io.field("form", weight.form);
  io.field("element", weight.element);
  io.field("n", weight.n);
  io.field("k", weight.k);
  io.optional("experts", weight.experts);
  io.field("per_layer", weight.perLayer);
  io.optional("theta", weight.theta);
  io.optional("parts", weight.parts);
}

template <typename IO> void fields(IO &io, Launch &launch) {
  io.field("kernel", launch.kernel);
  io.field("layer", launch.layer);
}

template <typename IO> void fields(IO &io, Plan &plan) {
  io.field("model", plan.model);
  io.field("target", plan.target);
  io.field("sms", plan.sms);
  io.field("rows", plan.rows);
  io.field("tp", plan.tp);
  io.field("layers", plan.layers);
  io.field("kv_heads", plan.kvHeads);
  if (plan.tp != 1)
    io.field("head_ranks", plan.headRanks);
  io.field("head_dim", plan.headDim);
  io.optional("max_positions", plan.maxPositions);
  io.optional("vocab", plan.vocab);
  io.optional("cuda_version", plan.cudaVersion);
  io.field("weight_layout", plan.weightLayout);
  io.optional("launch_mode", plan.launchMode);
  io.field("kernels", plan.kernels);
  io.field("buffers", plan.buffers);
  io.field("weights", plan.weights);
  io.field("launches", plan.launches);
  io.optional("advance", plan.advance);
}

/// Writes fields in their order.
class Writer {
public:
  explicit Writer(llvm::json::OStream &os) : os(os) {}

  template <typename T> void field(llvm::StringRef key, const T &value) {
    os.attributeBegin(key);
    put(value);
    os.attributeEnd();
  }
  /// Left out when it has the value it would be read as.
  template <typename T> void optional(llvm::StringRef key, const T &value) {
    if (!(value == T()))
      field(key, value);
  }

  template <typename T> void object(const T &value) {
    os.objectBegin();
    fields(*this, const_cast<T &>(value));
    os.objectEnd();
  }

private:
  void put(const std::string &value) { os.value(value); }
  void put(int64_t value) { os.value(value); }
  void put(bool value) { os.value(value); }
  void put(double value) { os.value(value); }
  template <typename T> void put(const std::optional<T> &value) { put(*value); }
  template <typename T> void put(const std::vector<T> &list) {
    os.arrayBegin();
    for (const T &item : list)
      put(item);
    os.arrayEnd();
  }
  template <typename T> void put(const T &value) {
    if constexpr (std::is_enum_v<T>)
      os.value(spell(value));
    else
      object(value);
  }

  llvm::json::OStream &os;
};

/// Reads fields; keeps the first problem and skips everything after it.
class Reader {
public:
  Reader(llvm::json::Object &object, std::string path, std::string &error)
      : object(object), path(std::move(path)), error(error) {}

  template <typename T> void field(llvm::StringRef key, T &value) {
    if (!error.empty())
      return;
    auto it = object.find(key);
    if (it == object.end())
      return fail(key, "missing");
    get(it->second, where(key), value);
    object.erase(key);
  }
  template <typename T> void optional(llvm::StringRef key, T &value) {
    if (!error.empty() || object.find(key) == object.end())
      return;
    field(key, value);
    // What says nothing is not written: whoever wrote an empty list left something out.
    if constexpr (requires { value.empty(); })
      if (error.empty() && value.empty())
        fail(key, "expected at least one value, or the field left out");
  }
  void finish() {
    if (error.empty() && !object.empty())
      fail(object.begin()->first, "unknown field");
  }

private:
  std::string where(llvm::StringRef key) const {
    return path.empty() ? key.str() : path + "." + key.str();
  }
  void fail(llvm::StringRef key, llvm::StringRef text) { error = where(key) + ": " + text.str(); }
  void expected(llvm::StringRef what, const llvm::json::Value &got, const std::string &at) {
    std::string text;
    llvm::raw_string_ostream(text) << got;
    if (text.size() > 40)
      text = text.substr(0, 37) + "...";
    error = at + ": expected " + what.str() + ", got " + text;
  }

  void get(llvm::json::Value &value, const std::string &at, std::string &out) {
    if (auto text = value.getAsString())
      out = text->str();
    else
      expected("a string", value, at);
  }
  void get(llvm::json::Value &value, const std::string &at, int64_t &out) {
    if (auto number = value.getAsInteger())
      out = *number;
    else
      expected("an integer", value, at);
  }
  void get(llvm::json::Value &value, const std::string &at, bool &out) {
    if (auto truth = value.getAsBoolean())
      out = *truth;
    else
      expected("true or false", value, at);
  }
  void get(llvm::json::Value &value, const std::string &at, double &out) {
    if (auto number = value.getAsNumber())
      out = *number;
    else
      expected("a number", value, at);
  }
  template <typename T>
  void get(llvm::json::Value &value, const std::string &at, std::optional<T> &out) {
    get(value, at, out.emplace());
  }
  template <typename T>
  void get(llvm::json::Value &value, const std::string &at, std::vector<T> &out) {
    llvm::json::Array *array = value.getAsArray();
    if (!array)
      return expected("an array", value, at);
    out.clear();
    for (size_t i = 0; i < array->size() && error.empty(); ++i)
      get((*array)[i], at + "[" + std::to_string(i) + "]", out.emplace_back());
  }
  template <typename T> void get(llvm::json::Value &value, const std::string &at, T &out) {
    if constexpr (std::is_enum_v<T>) {
      std::string choices;
      for (const auto &s : spellings(out)) {
        if (value.getAsString() == s.text) {
          out = s.value;
          return;
        }
        choices += (choices.empty() ? "" : ", ") + s.text.str();
      }
      expected("one of " + choices, value, at);
    } else {
      llvm::json::Object *inner = value.getAsObject();
      if (!inner)
        return expected("an object", value, at);
      Reader reader(*inner, at, error);
      fields(reader, out);
      reader.finish();
    }
  }

  llvm::json::Object &object;
  std::string path;
  std::string &error;
};

} // namespace

llvm::StringRef str(SlotRole role) {
  return spell(role);
}
llvm::StringRef str(BufferSpace space) {
  return spell(space);
}
llvm::StringRef str(BufferKind kind) {
  return spell(kind);
}
llvm::StringRef str(BufferInit init) {
  return spell(init);
}
llvm::StringRef str(Element element) {
  return spell(element);
}
llvm::StringRef str(WeightForm form) {
  return spell(form);
}
llvm::StringRef str(TransformKind kind) {
  return spell(kind);
}
llvm::StringRef str(Axis axis) {
  return spell(axis);
}
llvm::StringRef str(LaunchMode mode) {
  return spell(mode);
}

std::string toJson(const Plan &plan) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  llvm::json::OStream os(stream, 1);
  os.objectBegin();
  os.attribute("version", kPlanVersion);
  Writer writer(os);
  fields(writer, const_cast<Plan &>(plan)); // a Writer only reads
  os.objectEnd();
  os.flush();
  stream << "\n";
  return text;
}

llvm::Expected<Plan> parsePlan(llvm::StringRef text, llvm::StringRef file) {
  auto value = parseJson(text);
  if (!value)
    return problem("{0}: not JSON: {1}; is the file complete?", file,
                   llvm::toString(value.takeError()));
  llvm::json::Object *object = value->getAsObject();
  if (!object)
    return problem("{0}: expected an object", file);
  // The version first: fields of another version mean nothing here.
  auto version = object->getInteger("version");
  if (!version)
    return problem("{0}: version: missing, expected {1}", file, kPlanVersion);
  if (*version != kPlanVersion)
    return problem("{0}: version: expected {1}, got {2}: compile the plan again with this version "
                   "of megalith",
                   file, kPlanVersion, *version);
  object->erase("version");
  Plan plan;
  std::string error;
  Reader reader(*object, "", error);
  fields(reader, plan);
  reader.finish();
  if (!error.empty())
    return problem("{0}: {1}", file, error);
  if (auto invalid = validate(plan))
    return problem("{0}: {1}", file, llvm::toString(std::move(invalid)));
  return plan;
}

} // namespace megalith::runtime
