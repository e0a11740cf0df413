//===- Declarations.cpp - A kernel's declarations in C++ --------------------===//

#include "codegen/Declarations.h"

#include "runtime/abi.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdlib>

using namespace mlir;
using namespace megalith::task;

namespace megalith {

SmallVector<EdgeOp> mbarrierEdges(KernelOp kernel) {
  SmallVector<EdgeOp> edges = kernel.edges();
  llvm::erase_if(edges, [](EdgeOp edge) { return edge.isGlobal(); });
  return edges;
}

/// A location as one reads it: the name that an importer gave, or a file's line.
static std::string placeOf(Location location) {
  if (auto named = dyn_cast<NameLoc>(location)) {
    const std::string inner = placeOf(named.getChildLoc());
    return named.getName().str() + (inner.empty() ? "" : " in " + inner);
  }
  if (auto fused = dyn_cast<FusedLoc>(location))
    return placeOf(fused.getLocations().front());
  auto file = dyn_cast<FileLineColLoc>(location);
  if (!file)
    return "";
  // Without folders, so that equal inputs give equal text wherever they lie.
  const StringRef name = llvm::sys::path::filename(file.getFilename());
  return (name + (file.getLine() ? ":" + Twine(file.getLine()) : Twine())).str();
}

std::string describe(StageOp stage) {
  const std::string source = stage.getSource().value_or("").str(), place = placeOf(stage.getLoc());
  return source + (source.empty() || place.empty() ? "" : " at ") + place;
}

/// A place in shared memory, which planning must have given.
static FailureOr<int64_t> offsetOf(Operation *op, std::optional<int64_t> offset) {
  if (offset)
    return *offset;
  return op->emitOpError() << "expected an offset in shared memory, but memory is not planned yet: "
                              "run task-plan-memory before emitting source";
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// The text of `type` with the buffer's own numbers.
static std::string substituted(BufferOp buffer, int64_t offset) {
  std::string type = buffer.getType()->str();
  const std::pair<StringRef, int64_t> numbers[] = {{"$offset", offset},
                                                   {"$rows", buffer.rows()},
                                                   {"$cols", buffer.cols()},
                                                   {"$slots", buffer.getSlots()}};
  for (const auto &[mark, number] : numbers)
    for (size_t at; (at = type.find(mark)) != std::string::npos;)
      type.replace(at, mark.size(), std::to_string(number));
  return type;
}

/// Bytes between rows that the header's type of such a buffer has: Rows, or else WordRows.
static int64_t strideOfType(BufferOp buffer) {
  if (buffer.getElement().isBF16())
    return 2 * llvm::alignTo(buffer.cols(), 128) + 32;
  return llvm::alignTo(4 * buffer.cols(), 16);
}

/// The header's type of a shared buffer: its own `type`, else by element.
static FailureOr<std::string> sharedType(BufferOp buffer) {
  FailureOr<int64_t> offset = offsetOf(buffer, buffer.getOffset());
  if (failed(offset))
    return failure();
  if (buffer.getType())
    return substituted(buffer, *offset);
  std::string numbers = llvm::formatv("{0}, {1}, ", *offset, buffer.rows());
  if (buffer.getElement().isInteger(8)) {
    numbers += std::to_string(buffer.rowStride());
    if (buffer.getSlots() != 1)
      numbers += ", " + std::to_string(buffer.getSlots());
    return "SlottedRows<" + numbers + ">";
  }
  if (buffer.elementBytes() != 4 && !buffer.getElement().isBF16())
    return buffer.emitOpError() << "expected elements of bf16, 4 bytes or i8 where no type is "
                                   "given, but got "
                                << buffer.getElement();
  if (buffer.getSlots() != 1)
    return buffer.emitOpError() << "expected one slot where no type is given, but got "
                                << buffer.getSlots();
  if (buffer.getRowBytes() && *buffer.getRowBytes() != strideOfType(buffer))
    return buffer.emitOpError() << "expected row_bytes to be " << strideOfType(buffer)
                                << ", the stride of its C++ type, but got "
                                << *buffer.getRowBytes();
  const StringRef name = buffer.getElement().isBF16() ? "Rows<" : "WordRows<";
  return (name + numbers + Twine(buffer.cols()) + ">").str();
}

static LogicalResult emitShared(BufferOp buffer, Writer &out) {
  FailureOr<std::string> type = sharedType(buffer);
  if (failed(type))
    return failure();
  out.line("using " + buffer.getSymName() + " = " + *type + ";");
  return success();
}

static LogicalResult emitGlobal(BufferOp buffer, Writer &out) {
  if (buffer.getMutability() == Mutability::Value)
    return buffer.emitOpError() << "expected no values at role level: exchanges take their place "
                                   "(run task-materialize-exchanges)";
  out.line("constexpr int " + buffer.getSymName() + " = " + Twine(*buffer.getSlot()) + ";");
  return success();
}

static void emitExchange(ExchangeOp exchange, Writer &out) {
  const std::string name = ("using " + exchange.getSymName() + " = ").str();
  auto kernel = exchange->getParentOfType<KernelOp>();
  if (exchange.getPeers()) {
    auto peers = kernel.peerExchanges();
    out.line(name + "PeerWords<" + Twine(exchange.getSlot()) + ", " + Twine(exchange.rows()) +
             ", " + Twine(exchange.wordsPerRow()) + ", " + Twine(exchange.getSets()) + ", " +
             Twine(kernel.getRanks()) + ", " + Twine(llvm::find(peers, exchange) - peers.begin()) +
             ">;");
    return;
  }
  if (exchange.hasTriples())
    out.line(name + "Epochs<" + Twine(exchange.getSlot()) + ", " +
             Twine(exchange.rows() * exchange.wordsPerRow() / 4) + ">;");
  else
    out.line(name + "Words<" + Twine(exchange.getSlot()) + ", " + Twine(exchange.rows()) + ", " +
             Twine(exchange.wordsPerRow()) + ", " + Twine(exchange.getSets()) + ">;");
}

static LogicalResult emitMemory(KernelOp kernel, Writer &out) {
  out.comment("Buffers and weights: slots of LaunchArgs::buffer");
  if (kernel.isLooping())
    out.comment(
        ("Those below " + Twine(*kernel.getLayered()) + " differ from launch to launch").str());
  for (auto buffer : kernel.getOps<BufferOp>())
    if (buffer.getSpace() == Space::Global && failed(emitGlobal(buffer, out)))
      return failure();
  for (auto weights : kernel.getOps<WeightsOp>())
    out.line("constexpr int " + weights.getSymName() + " = " + Twine(weights.getSlot()) + ";");
  if (!kernel.getOps<ExchangeOp>().empty()) {
    out.blank();
    out.comment("Exchanges: slot, rows, words a row, sets; or slot, epoch words");
    if (kernel.getRanks() > 1)
      out.comment("Those of ranks: also their number, place in RankArgs::peer");
    for (auto exchange : kernel.getOps<ExchangeOp>())
      emitExchange(exchange, out);
  }
  out.blank();
  out.comment("Shared memory: first the offset");
  for (auto ring : kernel.getOps<RingOp>()) {
    FailureOr<int64_t> offset = offsetOf(ring, ring.getOffset());
    if (failed(offset))
      return failure();
    out.line("using " + ring.getSymName() + " = Ring<" + Twine(*offset) + ", " +
             Twine(ring.getSlots()) + ", " + Twine(ring.getSlotBytes()) + ">;");
  }
  for (auto buffer : kernel.getOps<BufferOp>())
    if (buffer.getSpace() == Space::Smem && failed(emitShared(buffer, out)))
      return failure();
  return success();
}

//===----------------------------------------------------------------------===//
// Edges
//===----------------------------------------------------------------------===//

static void emitEdge(EdgeOp edge, const Twine &base, StringRef remark, Writer &out) {
  std::string ends = (stringifyRole(edge.getFrom()) + " -> ").str();
  llvm::interleave(
      edge.getTo().getAsRange<RoleAttr>(),
      [&](RoleAttr role) { ends += stringifyRole(role.getValue()); }, [&] { ends += ", "; });
  out.open("struct " + edge.getSymName() + " : " + base + " { // " + ends + remark);
  out.line("static constexpr char kName[] = \"" + edge.getSymName() + "\";");
  out.close("};");
}

bool isStream(KernelOp kernel, StringRef edge) {
  return llvm::any_of(kernel.getOps<RingOp>(), [&](RingOp ring) {
    return ring.getFull() == edge || ring.getFree() == edge;
  });
}

/// The header's base of the edge of such an exchange.
static StringRef baseOf(ExchangeOp exchange) {
  switch (exchange.getWord()) {
  case WordKind::Sentinel:
  case WordKind::Number:
    return "WordsEdge";
  case WordKind::Epoch:
    return "EpochEdge";
  case WordKind::Plain:
  case WordKind::Triple:
    return "LaunchEdge";
  }
  llvm_unreachable("no such word");
}

static LogicalResult emitEdges(KernelOp kernel, Writer &out) {
  for (EdgeOp edge : kernel.edges()) {
    const std::string id = std::to_string(edge.getId());
    if (edge.getKind() == EdgeKind::Launches) {
      emitEdge(edge, "LaunchesEdge<" + id + ", " + Twine(*edge.getSlot()) + ">",
               ", once a launch by all SMs", out);
      continue;
    }
    if (edge.isGlobal()) {
      for (auto exchange : kernel.getOps<ExchangeOp>())
        if (exchange.getEdge() == edge.getSymName())
          emitEdge(edge, baseOf(exchange) + "<" + id + ", " + exchange.getSymName() + ">",
                   exchange.getPeers()           ? ", words of all ranks"
                   : exchange.isSelfValidating() ? ", words of all SMs"
                                                 : ", of a launch before",
                   out);
      continue;
    }
    FailureOr<int64_t> offset = offsetOf(edge, edge.getOffset());
    if (failed(offset))
      return failure();
    const StringRef remark = edge.getKind() == EdgeKind::Bytes    ? ", by bytes"
                             : edge.getKind() == EdgeKind::Credit ? ", free slots"
                                                                  : "";
    emitEdge(edge,
             "MbarrierEdge<" + id + ", " + Twine(*offset) + ", " + Twine(edge.getSlots()) + ", " +
                 Twine(edge.getArrivals()) + ">",
             remark, out);
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Stages
//===----------------------------------------------------------------------===//

/// The shortest decimal that reads back as `value`, as a C++ literal.
static std::string floatLiteral(double value, bool isDouble) {
  std::string text;
  for (int digits = 1; digits <= 17; ++digits) {
    text.clear();
    llvm::raw_string_ostream(text) << llvm::format("%.*g", digits, value);
    const double back =
        isDouble ? std::strtod(text.c_str(), nullptr) : std::strtof(text.c_str(), nullptr);
    if (back == value)
      break;
  }
  if (!StringRef(text).contains('.') && !StringRef(text).contains('e'))
    text += ".0";
  return text + (isDouble ? "" : "f");
}

/// What a symbol in a stage's config stands for, as a type.
static FailureOr<std::string> typeOf(StageOp stage, FlatSymbolRefAttr symbol) {
  Operation *decl = SymbolTable::lookupSymbolIn(stage->getParentOfType<KernelOp>(), symbol);
  if (!decl)
    return stage.emitOpError() << "expected config's " << symbol
                               << " to be declared in this kernel, but nothing has that name";
  if (auto exchange = dyn_cast<ExchangeOp>(decl))
    return exchange.getEdge().str();
  return symbol.getValue().str();
}

/// The number that a symbol in a stage's config stands for: slot or offset.
static FailureOr<std::string> numberOf(StageOp stage, FlatSymbolRefAttr symbol) {
  FailureOr<std::string> type = typeOf(stage, symbol);
  if (failed(type))
    return failure();
  Operation *decl = SymbolTable::lookupSymbolIn(stage->getParentOfType<KernelOp>(), symbol);
  if (auto exchange = dyn_cast<ExchangeOp>(decl))
    return std::to_string(exchange.getSlot());
  auto buffer = dyn_cast<BufferOp>(decl);
  const bool isShared = isa<RingOp>(decl) || (buffer && buffer.getSpace() == Space::Smem);
  return isShared ? *type + "::kOffset" : *type;
}

/// `static constexpr …` of a config key that starts with k and a capital.
static FailureOr<std::string> constantOf(StageOp stage, NamedAttribute member) {
  const std::string name = " " + member.getName().str() + " = ";
  const Attribute value = member.getValue();
  if (auto flag = dyn_cast<BoolAttr>(value))
    return "bool" + name + (flag.getValue() ? "true" : "false");
  if (isa<UnitAttr>(value))
    return "bool" + name + "true";
  if (auto integer = dyn_cast<IntegerAttr>(value))
    return (llvm::isInt<32>(integer.getInt()) ? "int" : "int64_t") + name +
           std::to_string(integer.getInt());
  if (auto real = dyn_cast<FloatAttr>(value)) {
    const bool isDouble = real.getType().isF64();
    return (isDouble ? "double" : "float") + name + floatLiteral(real.getValueAsDouble(), isDouble);
  }
  if (auto text = dyn_cast<StringAttr>(value))
    return "auto" + name + text.str();
  if (auto symbol = dyn_cast<FlatSymbolRefAttr>(value)) {
    FailureOr<std::string> number = numberOf(stage, symbol);
    return failed(number) ? number : "int" + name + *number;
  }
  return stage.emitOpError() << "expected config's " << member.getName()
                             << " to be a number, bool, symbol or text, but got " << value;
}

/// `using …` of a config key that starts with a capital.
static FailureOr<std::string> aliasOf(StageOp stage, NamedAttribute member) {
  const std::string name = member.getName().str() + " = ";
  if (auto text = dyn_cast<StringAttr>(member.getValue()))
    return name + text.str();
  if (auto symbol = dyn_cast<FlatSymbolRefAttr>(member.getValue())) {
    FailureOr<std::string> type = typeOf(stage, symbol);
    return failed(type) ? type : name + *type;
  }
  return stage.emitOpError() << "expected config's " << member.getName()
                             << " to be a symbol or a type's text, but got " << member.getValue();
}

/// `number`: of the stage in the kernel.
static LogicalResult emitStage(StageOp stage, int64_t number, Writer &out) {
  auto base = stage.getConfig().getAs<StringAttr>("base");
  SmallVector<std::string> members;
  if (stage->getParentOfType<KernelOp>().getTrace())
    members.push_back("static constexpr int kStage = " + std::to_string(number) + ";");
  auto collect = [&](bool constants) {
    for (NamedAttribute member : stage.getConfig()) {
      const StringRef key = member.getName();
      const bool isConstant = key.size() > 1 && key[0] == 'k' && llvm::isUpper(key[1]);
      if (constants ? !isConstant : !llvm::isUpper(key[0]))
        continue; // lower case: for passes, not for the device functions
      FailureOr<std::string> text = constants ? constantOf(stage, member) : aliasOf(stage, member);
      if (failed(text))
        return failure();
      members.push_back((constants ? "static constexpr " : "using ") + *text + ";");
    }
    return success();
  };
  if (failed(collect(true)) || failed(collect(false)))
    return failure();
  if (const std::string source = describe(stage); !source.empty())
    out.comment(source);
  const std::string head =
      ("struct " + stage.getSymName() + (base ? " : " + base.getValue().str() : "") + " {").str();
  if (members.empty()) {
    out.line(head + "};");
    return success();
  }
  out.open(head);
  for (const std::string &member : members)
    out.line(member);
  out.close("};");
  return success();
}

LogicalResult emitDeclarations(KernelOp kernel, Writer &out) {
  if (!kernel.getSmemBytes())
    return kernel.emitOpError() << "expected the bytes of shared memory, but memory is not planned "
                                   "yet: run task-plan-memory before emitting source";
  out.open("struct Config {");
  out.line("static constexpr int kSms = " + Twine(kernel.getSms()) + ";");
  out.line("static constexpr int kRows = " + Twine(kernel.getRows()) + ";");
  out.line("static constexpr int kEdges = " + Twine(kernel.edges().size()) + ";");
  out.line("static constexpr int kWarps = " + Twine(kWarpsPerCta) + ";");
  out.line("static constexpr uint32_t kSharedBytes = " + Twine(*kernel.getSmemBytes()) + ";");
  if (kernel.getTrace())
    out.line("static constexpr int kTraceStages = " +
             Twine(llvm::range_size(kernel.getOps<StageOp>())) + ";");
  if (kernel.isLooping()) {
    out.line("static constexpr int kLaunches = " + Twine(*kernel.getLaunches()) + ";");
    out.line("static constexpr int kLayered = " + Twine(*kernel.getLayered()) + ";");
  }
  if (kernel.getRanks() > 1) {
    out.line("static constexpr int kRanks = " + Twine(kernel.getRanks()) + ";");
    out.line("static constexpr int kPeers = " + Twine(kernel.peerExchanges().size()) + ";");
  }
  out.close("};");
  out.line(kernel.isLooping()      ? "using Cta = megalith::StepCta<Config>;"
           : kernel.getRanks() > 1 ? "using Cta = megalith::RankCta<Config>;"
                                   : "using Cta = megalith::Cta<Config>;");
  out.blank();
  if (failed(emitMemory(kernel, out)))
    return failure();
  out.blank();
  out.comment("Edges: id, offset of the mbarriers, slots, arrivals");
  if (failed(emitEdges(kernel, out)))
    return failure();
  out.blank();
  out.comment("Stages");
  for (auto [number, stage] : llvm::enumerate(kernel.getOps<StageOp>()))
    // Nothing asks what the end of a launch is, except for records of it.
    if ((stage.getKind() != StageKind::LaunchEnd || kernel.getTrace()) &&
        failed(emitStage(stage, number, out)))
      return failure();
  return success();
}

} // namespace megalith
