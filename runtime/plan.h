//===- plan.h - What a compiled plan consists of (plan.json) -----*- C++ -*-===//
//
// The compiler fills these structs and writes them beside the kernels; the runtime and the tools
// read them back. No kernel reads plan.json: everything a kernel needs is in its source and in
// LaunchArgs (runtime/abi.h). DESIGN sections 2.5 and 3, docs/kernel-contract.md sections 1, 2
// and 5.
//
// How the parts refer to each other: a launch names a kernel and a layer; a kernel's slots name a
// buffer or a weight; a weight names checkpoint tensors. All names are unique within their list,
// and buffers and weights share one name space.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_RUNTIME_PLAN_H
#define MEGALITH_RUNTIME_PLAN_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace megalith::runtime {

/// Version of plan.json. A reader accepts exactly this one.
inline constexpr int64_t kPlanVersion = 6;

/// What a kernel does with the buffer behind a slot.
enum class SlotRole {
  Weights,   ///< packed weights of the launch's layer, read only
  Immutable, ///< tables that do not change between launches (inverse frequencies), read only
  Exchange,  ///< words or epochs between SMs
  Kv,        ///< the page pool of the launch's layer
  Output,    ///< read back by the host after a step (logits)
  Tap,       ///< optional: null unless the host asks for it (residual, routing)
  Input,     ///< optional: written by the host before a step (routing_in), else null
  Tokens,    ///< optional: list of the tokens that steps chose, null unless the host asks for it
};

/// LaunchArgs::buffer[slot] of one kernel.
struct SlotBinding {
  int64_t slot = 0; ///< 0..kMaxBuffers - 1
  std::string name; ///< of a Buffer or a Weight
  SlotRole role = SlotRole::Weights;
  /// Added to the launch's layer to find the layer of a per-layer buffer or weight: 1 for the
  /// projections of the next layer, which the launch of layer l computes at its end.
  int64_t layerOffset = 0;
  /// Of a looping kernel: the launches [first, end) that use it; both 0: all.
  int64_t first = 0, end = 0;

  bool isUsedIn(int64_t launch) const { return end == 0 || (first <= launch && launch < end); }

  bool operator==(const SlotBinding &) const = default;
};

/// A numbered synchronisation edge, for messages about deadlines.
struct Edge {
  int64_t id = 0;
  std::string name; ///< e.g. "qkv_weights_full"
  std::string from; ///< signalling role, e.g. "producer"
  std::string to;   ///< waiting role
  std::string kind; ///< "mbarrier", "bytes", "credit", "words", "launch" or "launches"
  /// Edges that `from` waits for before it signals this one: while it does, this one's waiters wait
  /// on its account.
  std::vector<int64_t> after;

  /// Whether who waits does it for a role of its own SM.
  bool isLocal() const { return kind == "mbarrier" || kind == "bytes" || kind == "credit"; }
  bool operator==(const Edge &) const = default;
};

/// What NVRTC reported for a kernel.
struct KernelResources {
  int64_t registers = 0;
  int64_t spillBytes = 0; ///< stores and loads together
  int64_t stackBytes = 0;
  int64_t staticSmemBytes = 0;
  int64_t codeBytes = 0;

  bool operator==(const KernelResources &) const = default;
};

/// What a role does in a stage of a kernel that records.
struct TraceRole {
  std::string role;               ///< "producer", …
  std::vector<std::string> waits; ///< edges it waits for or polls, but the ring's

  bool operator==(const TraceRole &) const = default;
};

/// A stage of a kernel that records, in the order of its number.
struct TraceStage {
  std::string name;             ///< "o_proj"
  int64_t sms = 0;              ///< that take part
  std::vector<TraceRole> roles; ///< that do

  const TraceRole *role(llvm::StringRef name) const;

  bool operator==(const TraceStage &) const = default;
};

/// An exchange that one stage stores and another's consumers poll, or its poller for them.
struct TraceHop {
  std::string edge;      ///< "attn_words"
  std::string from, to;  ///< stages
  bool previous = false; ///< the launch before stored it
  bool pieces = false;   ///< polled expert by expert, while others are worked on

  bool operator==(const TraceHop &) const = default;
};

/// How to read what a kernel compiled with --trace records (runtime/trace.h).
struct KernelTrace {
  std::vector<TraceStage> stages;
  std::vector<TraceHop> hops;

  bool operator==(const KernelTrace &) const = default;
};

struct Kernel {
  std::string name;  ///< the extern "C" symbol
  std::string file;  ///< source, relative to plan.json: "kernels/layer.cu"
  std::string cubin; ///< relative to plan.json; empty where the plan was not compiled for a GPU
  std::string cubinDigest; ///< digestOf the cubin's bytes (runtime/kernel_cache.h)
  int64_t smemBytes = 0;   ///< dynamic shared memory
  int64_t threads = 352;
  /// Of a kernel that loops over the launches of a step (StepArgs): how many there are, and that
  /// slots below `layered` differ from launch to launch. 0: the kernel does not loop.
  int64_t launches = 0, layered = 0;
  /// Of a kernel of several ranks (RanksArgs): the buffers that RankArgs::peer lists, in its order.
  std::vector<std::string> peers;
  std::vector<SlotBinding> slots;
  std::vector<Edge> edges;
  std::optional<KernelResources> resources;
  std::optional<KernelTrace> trace; ///< none: it records nothing

  bool operator==(const Kernel &) const = default;
};

enum class BufferSpace {
  Device, ///< global memory of the GPU
  Pinned, ///< host memory that the GPU can write
};

enum class BufferKind {
  Words,     ///< self-validating words (contract section 2): `sets` sets, re-armed by kernels
  Epoch,     ///< b128 words {3 x fp32, epoch}: one set, never re-armed
  Kv,        ///< pages of one layer; `bytes` is one page, the runtime chooses how many
  Output,    ///< plain values for the host
  Scratch,   ///< anything a kernel writes before it reads it
  Counter,   ///< arrivals of SMs in a looping kernel, sms for every launch number, modulo 2^32
  Numbers,   ///< b32 words of ranks: how far each SM of each is; they start at the launch number
  Immutable, ///< filled once before the first launch
  Tokens,    ///< TokenList (runtime/abi.h); `bytes` is one step's, the runtime chooses how many
};

enum class BufferInit {
  Empty,  ///< every b32 word 0xFFFFFFFF
  Poison, ///< a NaN pattern (0x7FC17FC1): must be written before it is read
  Zero,
  Load, ///< the host fills it
};

/// Type of a buffer's elements, for reading it back.
/// E4m3: of KV pages only.
enum class Element { Bf16, F32, I32, U32, E4m3 };

struct Buffer {
  std::string name;
  BufferSpace space = BufferSpace::Device;
  BufferKind kind = BufferKind::Words;
  int64_t bytes = 0;     ///< of one set; for Kv, of one page of one layer
  int64_t sets = 1;      ///< consecutive in memory; words: 2, or 3 if crossing
  bool crossing = false; ///< also read by the next launch
  bool perLayer = false; ///< one for each layer (kv, residual taps)
  /// Of Kv: positions that a row looks back at, its own included; the runtime keeps these in a ring
  /// of pages (ringPages of runtime/step.h). 0: all.
  int64_t window = 0;
  BufferInit init = BufferInit::Empty;
  Element element = Element::Bf16;
  std::vector<int64_t> shape; ///< of one set, in elements; for messages and reading back
  /// Pairs (columns, ranks that have the same ones): the parts of a row of which each rank has its
  /// own columns. Empty: all ranks' are equal, or nobody else's business.
  std::vector<int64_t> rankParts;

  bool operator==(const Buffer &) const = default;
};

/// How a weight lies in memory.
enum class WeightForm {
  Strips,             ///< strip-packed matrix [n][k], pair (2i, 2i+1) (contract section 1)
  GateUpStrips,       ///< strip-packed, pair (gate i, up i); n counts both, so n = 2 * intermediate
  Nvfp4,              ///< NVFP4 tiles, rows paired as Strips does (runtime/packing_nvfp4.h)
  GateUpNvfp4,        ///< NVFP4 tiles, rows paired as GateUpStrips does
  Vector,             ///< k values, zero-padded to a multiple of 128
  Table,              ///< n rows of k values, row-major, as in the checkpoint
  InverseFrequencies, ///< k/2 fp32 values theta^(-2j/k), no checkpoint tensor
};

/// One step from a checkpoint tensor to a weight. A closed list: a new kind needs a new
/// kPlanVersion. Applied in order to a tensor seen as rows x columns (leading dimensions are
/// flattened).
enum class TransformKind {
  Slice,      ///< rows or columns [first, first + count); of each of `groups` equal ranges of rows
  Permute,    ///< rows in the order of `order`, repeated for each group of order.size() rows
  Interleave, ///< rows (0, 1, .. `groups`*m - 1): row i comes from row (i % groups) * m + i /
              ///< groups
  AddOne,     ///< 1 + w, in fp32, then rounded to bf16
  GateAlpha,  ///< of a residual gate g, in fp32, with u = g / temperature:
              ///< sqrt(max(sigmoid(-u) (1 + sigmoid(u)), floor))
  GateBeta,   ///< sigmoid(u)
  Pad,        ///< zero rows or columns at the end, up to `count` in all
  Shard,      ///< a rank's rows or columns: `count` from rank / `groups` * `count` on (planOfRank);
              ///< of rows, of each of `matrices` equal ranges
};

enum class Axis { Rows, Columns };

struct Transform {
  TransformKind kind = TransformKind::Slice;
  Axis axis = Axis::Rows; ///< slice, pad
  int64_t first = 0;      ///< slice
  int64_t count = 0;      ///< slice, pad
  int64_t groups = 0;     ///< interleave; slice of rows, 0: one; shard: ranks with the same rows
  int64_t matrices = 0;   ///< shard; 0: one
  std::vector<int64_t> order; ///< permute
  double temperature = 0;     ///< gate_alpha, gate_beta
  double floor = 0;           ///< gate_alpha

  bool operator==(const Transform &) const = default;
};

/// A checkpoint tensor that a weight is made of.
struct WeightPart {
  std::string tensor; ///< checkpoint name; "{layer}" and "{expert}" stand for decimal numbers
  std::vector<int64_t> shape; ///< in the checkpoint, unsharded
  bool gain = false;          ///< a norm's gain: made-up weights are then 1 + w
  std::vector<Transform> transforms;

  bool operator==(const WeightPart &) const = default;
};

/// A packed weight. Parts are stacked by rows in their order (q, k, v); for GateUpStrips and
/// GateUpNvfp4 there are two, gate then up. An expert bank holds `experts` such matrices one after
/// another.
struct Weight {
  std::string name; ///< "qkv", "expert_up", …
  WeightForm form = WeightForm::Strips;
  Element element = Element::Bf16; ///< in memory; bf16 for gate_up_strips, no meaning for NVFP4
  int64_t n = 1;                   ///< output rows after stacking, before padding
  int64_t k = 0;                   ///< columns, before padding
  int64_t experts = 0;             ///< 0: no expert bank
  bool perLayer = true;            ///< false: one for the model (embedding, head, final norm)
  double theta = 0;                ///< InverseFrequencies
  std::vector<WeightPart> parts;

  bool isNvfp4() const { return form == WeightForm::Nvfp4 || form == WeightForm::GateUpNvfp4; }
  bool isGateUp() const {
    return form == WeightForm::GateUpStrips || form == WeightForm::GateUpNvfp4;
  }
  bool operator==(const Weight &) const = default;
};

/// What one launch of a plan computes.
enum class LaunchMode {
  Fused,    ///< a layer
  PerStage, ///< a stage of a layer
  Step,     ///< all layers, in a kernel that loops over them
};

/// One launch of a step. Launches of a looping kernel are turns of its loop: any row of them is one
/// launch of the machine.
struct Launch {
  std::string kernel;
  /// LaunchArgs::layer, and the base of the slots' layerOffset; -1 for the launch of a looping
  /// kernel that stands before the first layer.
  int64_t layer = 0;

  bool operator==(const Launch &) const = default;
};

/// Launches [first, first + count) of a step.
struct LaunchGroup {
  int64_t first, count;
  int64_t last() const { return first + count - 1; }
};

struct Plan {
  std::string model;  ///< for messages: the config's name
  std::string target; ///< "sm_90a"
  int64_t sms = 0;    ///< CTAs of every launch
  int64_t rows = 0;   ///< bucket: most live rows
  int64_t tp = 1;     ///< ranks; shapes, sizes and slots are of one
  int64_t layers = 0;
  int64_t kvHeads = 0;   ///< of a rank
  int64_t headRanks = 1; ///< ranks that have the same KV heads
  int64_t headDim = 0;
  /// Of a sequence, new rows included: what the proof took for the longest. 0: there are no pages.
  int64_t maxPositions = 0;
  int64_t vocab = 0;        ///< tokens are below it; 0: not known, tokens are not checked
  int64_t cudaVersion = 0;  ///< of the NVRTC that made the cubins, 13000 = 13.0; 0: no cubins
  std::string weightLayout; ///< kWeightLayoutDigest (runtime/packing.h) of the compiler
  LaunchMode launchMode = LaunchMode::Fused;
  std::vector<Kernel> kernels;
  std::vector<Buffer> buffers;
  std::vector<Weight> weights;
  std::vector<Launch> launches; ///< one step, in order
  /// The kernel behind a step's launches that moves the step descriptor on; empty: the host does.
  std::string advance;

  /// The kernel that loops over all launches of a step, or null: they are launches of the machine.
  const Kernel *loopingKernel() const {
    return !kernels.empty() && kernels.front().launches ? &kernels.front() : nullptr;
  }
  const Kernel *kernel(llvm::StringRef name) const;
  const Buffer *buffer(llvm::StringRef name) const;
  const Weight *weight(llvm::StringRef name) const;

  /// The launches of a step by layer: those before layer 0 reads its pages, those until layer 1
  /// does, and so on to the end. Never empty; group i > 0 is of layer i - 1 where a step has pages.
  std::vector<LaunchGroup> groups() const;

  bool operator==(const Plan &) const = default;
};

/// "rows1", "rows1-per-stage", "rows1-tp2": the folder of an artifact within its target's.
std::string artifactName(int64_t rows, LaunchMode mode, int64_t tp = 1);

llvm::StringRef str(SlotRole role);
llvm::StringRef str(BufferSpace space);
llvm::StringRef str(BufferKind kind);
llvm::StringRef str(BufferInit init);
llvm::StringRef str(Element element);
llvm::StringRef str(WeightForm form);
llvm::StringRef str(TransformKind kind);
llvm::StringRef str(Axis axis);
llvm::StringRef str(LaunchMode mode);

/// Bytes of one element.
int64_t elementBytes(Element element);

struct KvLayout; // packing.h
/// How `pages`, a buffer of kind Kv, lie in memory.
KvLayout kvLayoutOf(const Plan &plan, const Buffer &pages);

/// Everything that can be said about a plan without its files: names are unique and defined, slots
/// and sizes in range, layers exist. The first problem found, as one line.
llvm::Error validate(const Plan &plan);

/// The text of plan.json: keys in a fixed order, so equal plans give equal bytes.
std::string toJson(const Plan &plan);

/// Parses and validates. `file` is only for messages.
llvm::Expected<Plan> parsePlan(llvm::StringRef text, llvm::StringRef file = "plan.json");

/// Reads `file`; the error names the file and what to do.
llvm::Expected<Plan> readPlan(llvm::StringRef file);

/// Validates, then writes through a temporary file, so `file` is never half-written.
llvm::Error writePlan(const Plan &plan, llvm::StringRef file);

} // namespace megalith::runtime

#endif // MEGALITH_RUNTIME_PLAN_H
