//===- Bytes.cpp - The slots and bytes of a logged step -------------------===//

#include "codegen/lint/Bytes.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace megalith;
using namespace megalith::lint;
using namespace megalith::task;
using namespace megalith::verify;

Bytes::Bytes(const Program &program, const LoggedLaunch &launch, int64_t rank, Replayed &replayed)
    : program(program), n(launch.n - uint64_t(launch.first)), first(launch.first), rank(rank),
      own(program.ranks > 1 ? "rank_" + std::to_string(rank) + "'s_" : ""), replayed(replayed) {
  // What tells trip counts may be read anywhere: the routing table.
  KernelOp kernel = program.kernel;
  if (llvm::any_of(kernel.getOps<SymbolOp>(), [](SymbolOp symbol) { return symbol.getAfter(); }))
    for (const Shared &buffer : program.shared)
      if (BufferOp op = buffer.op; op.getElement().isInteger(32) && op.getOffset())
        tables.push_back({int64_t(*op.getOffset()), int64_t(*op.getOffset()) + op.byteSize(),
                          /*mayWrite=*/false});
}

StringRef Bytes::nameOf(StringRef logged, bool isOfAny) const {
  StringRef name = logged.split('[').first; // "w_qkv[1]"
  if (own.empty() || name.consume_front(own))
    return name;
  return isOfAny ? name.split("'s_").second : StringRef();
}

bool Bytes::isOthers(StringRef logged) const {
  return nameOf(logged).empty() && !nameOf(logged, /*isOfAny=*/true).empty();
}

std::string Bytes::check(const Instr &instr, const Place &place, const LoggedStep &step) {
  switch (instr.kind) {
  case Instr::Wait:
  case Instr::Acquire:
  case Instr::Peek:
    return checkBarrier(instr, place.uses[instr.edge], "wait", step);
  case Instr::Signal:
  case Instr::Release:
    return checkBarrier(instr, place.uses[instr.edge], "arrive", step);
  case Instr::Pace: {
    const int64_t window = cast<PaceOp>(instr.op).getWindow();
    if (int64_t(place.uses[instr.edge]) < window)
      return "waits for a copy that is not there";
    return checkBarrier(instr, place.uses[instr.edge] - window, "wait", step);
  }
  case Instr::Copy: {
    const std::string wrong = checkBarrier(instr, place.uses[instr.edge], "arrive", step);
    return wrong.empty() ? checkCopy(instr, place, step) : wrong;
  }
  case Instr::Poll:
  case Instr::Compute:
    return checkWords(instr, place, step);
  case Instr::Rearm:
    return checkRearm(instr, place, step);
  case Instr::LaunchWait:
  case Instr::LaunchDone:
    return instr.edge >= 0 ? checkLaunches(instr, place, step) : "";
  default:
    return "";
  }
}

/// Every barrier operation of the step is on the slot of that use.
std::string Bytes::checkBarrier(const Instr &instr, uint64_t use, StringRef kind,
                                const LoggedStep &step) {
  const verify::Edge &edge = program.edges[instr.edge];
  EdgeOp op = edge.op;
  const int64_t slot = int64_t(use) % edge.slots, expected = *op.getOffset() + 8 * slot;
  int found = 0;
  for (const LogLine &line : step.lines) {
    if (line.words[0] != "barrier")
      continue;
    ++found;
    if (line.words[1] != kind || line.at(2) != expected)
      return llvm::formatv("line {0}: '{1}' of @{2}, use {3}: expected {4} on slot {5}, the "
                           "barrier at {6}, but got {7} at {8}",
                           line.number, step.text, op.getSymName(), use, kind, slot, expected,
                           line.words[1], line.at(2));
  }
  replayed.slots += found;
  if (found == 0)
    return llvm::formatv("'{0}' of @{1}, use {2}: expected {3} on slot {4} but got nothing",
                         step.text, op.getSymName(), use, kind, slot);
  return "";
}

std::string Bytes::checkCopy(const Instr &instr, const Place &place, const LoggedStep &step) {
  RingOp ring = program.rings[instr.ring].op;
  const verify::Edge &edge = program.edges[instr.edge];
  EdgeOp edgeOp = edge.op;
  const int64_t slot = place.uses[instr.edge] % edge.slots;
  const int64_t target = *ring.getOffset() + slot * ring.getSlotBytes();
  const Access &source = program.accessesOf(instr).front();
  int copies = 0;
  for (const LogLine &line : step.lines) {
    if (line.words[0] != "copy")
      continue;
    ++copies;
    const int64_t begin = line.at(2), bytes = line.at(3), to = line.at(5);
    auto range = [&] {
      return llvm::formatv("line {0}: copy of {1}, bytes [{2}, {3}), to shared + {4}: ",
                           line.number, line.words[1], begin, begin + bytes, to)
          .str();
    };
    if (to < target || to + bytes > target + ring.getSlotBytes())
      return range() + llvm::formatv("expected it inside slot {0} of @{1}, [{2}, {3})", slot,
                                     ring.getSymName(), target, target + ring.getSlotBytes())
                           .str();
    if (line.at(7) != *edgeOp.getOffset() + 8 * slot)
      return range() + "completes another barrier than that of its slot";
    const Global &global = program.globals[source.decl];
    if (nameOf(line.words[1]) != Program::nameOf(global.op))
      return range() + "expected @" + Program::nameOf(global.op).str();
    auto weights = dyn_cast<WeightsOp>(global.op);
    if (!weights)
      continue; // pages are reached through a table
    // A block's strips lie one after another; which expert's, a table says.
    Rect piece = source.at(place.dims.data());
    for (int slice : source.slices) {
      const Rect all = program.accesses[slice].at(place.dims.data());
      piece.rows = std::min(piece.rowEnd(), all.rowEnd()) - piece.row;
    }
    const int64_t matrix = weights.byteSize() / weights.getExperts();
    const int64_t blockBytes = weights.strips() * weights.stripBytes();
    const int64_t within = source.table >= 0 ? begin % matrix : begin;
    // Of a piece of several blocks, a copy brings one, in ascending order.
    const int64_t block = std::clamp(within / blockBytes, piece.col, piece.colEnd() - 1);
    const int64_t first = block * blockBytes + piece.row * weights.stripBytes();
    const int64_t length = piece.rows * weights.stripBytes();
    if (within < first || within + bytes > first + length)
      return range() +
             llvm::formatv("expected it inside bytes [{0}, {1}) of a matrix", first, first + length)
                 .str();
  }
  replayed.ranges += copies;
  return copies ? "" : "'" + step.text.str() + "' copies nothing";
}

bool Bytes::Words::isInside(int64_t from, int64_t to) const {
  if (from < begin || to > end)
    return false;
  if (colBegin == 0 && colEnd == rowBytes)
    return true;
  const int64_t column = (from - setBegin) % rowBytes;
  return column >= colBegin && column + (to - from) <= colEnd;
}

Bytes::Words Bytes::wordsOf(const Access &access, const Place &place) const {
  auto exchange = cast<ExchangeOp>(program.globals[access.decl].op);
  const int64_t rowBytes = exchange.wordsPerRow() * 4, setBytes = rowBytes * exchange.rows();
  const uint64_t age = access.isCurrent() ? 0 : 1, sets = exchange.getSets();
  const int64_t set = sets == 1 ? 0 : int64_t((n + uint64_t(place.launch) + sets - age) % sets);
  const Rect rect = access.at(place.dims.data(), rank, program.globals[access.decl].share);
  const int64_t bytes = exchange.getElement().getIntOrFloatBitWidth() / 8;
  Words words{set * setBytes, (set + 1) * setBytes, rowBytes, 0, 0, 0, rowBytes, access.table >= 0};
  if (!exchange.hasTriples()) {
    words.colBegin = rect.col * bytes;
    words.colEnd = std::min(rowBytes, (rect.colEnd() * bytes + 3) / 4 * 4);
  }
  words.begin = words.setBegin + (words.hasAnyRow ? 0 : rect.row * rowBytes);
  words.end = words.hasAnyRow ? words.setEnd : words.setBegin + rect.rowEnd() * rowBytes;
  return words;
}

/// Loads of a poll and stores of a publication lie in what it declares, in the right set.
std::string Bytes::checkWords(const Instr &instr, const Place &place, const LoggedStep &step) {
  const bool isPoll = instr.kind == Instr::Poll;
  for (const LogLine &line : step.lines) {
    if (line.words[0] != "load" && line.words[0] != "store")
      continue;
    const StringRef name = nameOf(line.words[1], /*isOfAny=*/true);
    const bool isOfOthers = isOthers(line.words[1]);
    const int64_t begin = line.at(2), end = line.at(3);
    const bool isStore = line.words[0] == "store";
    const bool isExchange = llvm::any_of(program.globals, [&](const Global &global) {
      return global.kind == Global::Exchange && Program::nameOf(global.op) == name;
    });
    bool isDeclared = false;
    std::string expected;
    for (const Access &access : program.accessesOf(instr)) {
      if (access.isShared || program.globals[access.decl].kind != Global::Exchange ||
          Program::nameOf(program.globals[access.decl].op) != name)
        continue;
      // Words of ranks go to all replicas; everybody looks at the one at hand.
      if (access.isWrite != isStore ||
          (isOfOthers && !(isStore && program.globals[access.decl].isOfRanks)))
        continue;
      const Words words = wordsOf(access, place);
      // Lanes without an item of their own look at the first of the tile's rows again.
      const bool isIdle =
          isPoll && begin >= words.setBegin && end <= words.setEnd && end - begin <= 16;
      isDeclared |= words.isInside(begin, end) || isIdle;
      expected = llvm::formatv("bytes [{0}, {1}), columns [{2}, {3})", words.begin, words.end,
                               words.colBegin, words.colEnd);
    }
    if (isDeclared) {
      ++replayed.ranges;
      continue;
    }
    if (!isExchange && !isStore && !isOfOthers)
      continue; // the rank's own constants, the step's descriptor
    return llvm::formatv("line {0}: '{1}' {2}s bytes [{3}, {4}) of {5}, expected {6}", line.number,
                         step.text, line.words[0], begin, end, line.words[1],
                         expected.empty() ? "nothing of it" : expected);
  }
  return "";
}

std::string Bytes::checkRearm(const Instr &instr, const Place &place, const LoggedStep &step) {
  auto exchange = cast<ExchangeOp>(program.globals[instr.exchange].op);
  const int64_t setBytes = exchange.wordsPerRow() * 4 * exchange.rows();
  const uint64_t sets = exchange.getSets();
  const int64_t set =
      int64_t((n + uint64_t(place.launch) + 1) % sets); // what the next launch writes
  for (const LogLine &line : step.lines)
    if (line.words[0] == "store") {
      ++replayed.ranges;
      if (nameOf(line.words[1]) != exchange.getSymName() || line.at(2) < set * setBytes ||
          line.at(3) > (set + 1) * setBytes)
        return llvm::formatv("line {0}: re-arming of @{1} stores to {2} [{3}, {4}), expected set "
                             "{5}, [{6}, {7})",
                             line.number, exchange.getSymName(), line.words[1], line.at(2),
                             line.at(3), set, set * setBytes, (set + 1) * setBytes);
    }
  return "";
}

/// The counter that joins all SMs from one launch to the next: every launch but the first that
/// a kernel runs looks at it with acquire, each adds to it with release.
std::string Bytes::checkLaunches(const Instr &instr, const Place &place, const LoggedStep &step) {
  const bool isWait = instr.kind == Instr::LaunchWait;
  if (isWait && place.launch == first)
    return "";
  const StringRef order = isWait ? "acquire" : "release";
  const StringRef counter = Program::nameOf(program.edges[instr.edge].op);
  for (const LogLine &line : step.lines)
    if (line.words.back() == order && nameOf(line.words[1]) == counter && line.at(2) == 0) {
      ++replayed.ranges;
      return "";
    }
  return llvm::formatv(
      "'{0}' of launch {1} of the step: expected the counter's first word with {2}", step.text,
      place.launch, order);
}

std::string Bytes::checkBetween(const Place &place, const LoggedStep &between) {
  for (const LogLine &line : between.lines) {
    if (line.words[0] == "barrier" || line.words[0] == "copy")
      return llvm::formatv("line {0}: a {1} between marks", line.number, line.words[0]);
    if (line.words[0] == "load") {
      if (isOthers(line.words[1]))
        return llvm::formatv("line {0}: reads {1}, which another rank has", line.number,
                             line.words[1]);
      for (const Global &global : program.globals)
        if (global.kind == Global::Exchange && Program::nameOf(global.op) == nameOf(line.words[1]))
          return llvm::formatv("line {0}: reads exchange @{1} between marks", line.number,
                               nameOf(line.words[1]));
    }
    if (line.words[0] == "store" && !llvm::is_contained(place.written, nameOf(line.words[1])))
      return llvm::formatv("line {0}: stores to {1}, which no step here declares", line.number,
                           line.words[1]);
  }
  return checkShared(place, between);
}

std::string Bytes::checkShared(const Place &place, const LoggedStep &step) {
  for (const LogLine &line : step.lines) {
    if (line.words[0] != "shared")
      continue;
    ++replayed.ranges;
    const bool isWrite = line.words[1] == "write";
    // Spans may join: cover the range from its beginning on.
    int64_t at = line.at(2);
    const int64_t end = line.at(3);
    for (bool moves = true; moves && at < end;) {
      moves = false;
      auto cover = [&](const Span &span) {
        if ((!isWrite || span.mayWrite) && span.begin <= at && at < span.end) {
          at = span.end;
          moves = true;
        }
      };
      llvm::for_each(place.spans, cover);
      llvm::for_each(tables, cover);
    }
    if (at < end)
      return llvm::formatv("line {0}: {1}s shared memory [{2}, {3}), of which no step here "
                           "declares byte {4}{5}",
                           line.number, line.words[1], line.at(2), end, at, bufferAt(at));
  }
  return "";
}

std::string Bytes::bufferAt(int64_t offset) const {
  std::string names;
  for (const Shared &buffer : program.shared)
    if (BufferOp op = buffer.op; op.getOffset() && int64_t(*op.getOffset()) <= offset &&
                                 offset < int64_t(*op.getOffset()) + op.byteSize())
      names += (names.empty() ? " (@" : ", @") + op.getSymName().str();
  return names.empty() ? "" : names + ")";
}
