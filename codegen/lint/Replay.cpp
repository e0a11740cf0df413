//===- Replay.cpp - Walking role regions along a log ----------------------===//

#include "codegen/lint/Replay.h"

#include "codegen/lint/Regions.h"
#include "passes/verify/Program.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/FormatVariadic.h"

#include <map>
#include <memory>
#include <set>

using namespace mlir;
using namespace megalith::task;
using namespace megalith::verify;

namespace megalith::lint {

namespace {

/// A line that is set in, split at its blanks; numbers at their places.
struct Line {
  int number;
  llvm::SmallVector<StringRef, 8> words;
  int64_t at(size_t word) const {
    int64_t value = -1;
    if (word < words.size())
      words[word].getAsInteger(10, value);
    return value;
  }
};

/// A step of a warp: a mark, launch_wait, launch_dependents, or what lies between.
struct Logged {
  int number = 0;
  StringRef text;
  std::vector<Line> lines;
};

/// Bytes of shared memory that a step may touch.
struct Span {
  int64_t begin, end;
  bool mayWrite;
};

/// A place in a role's code, on one way through its loops.
struct Place {
  uint32_t pc = 0;
  llvm::SmallVector<int64_t, 6> dims; ///< the SM, then loop indices
  std::vector<uint32_t> uses;         ///< of each edge
  uint32_t begun = 0;                 ///< a bit for each mark of the step here that has come
  // Of the steps since the last mark: what they may touch.
  llvm::SmallVector<Span, 8> spans;
  llvm::SmallVector<StringRef, 4> written; ///< global buffers
};

/// "w_qkv[1]" without the layer.
StringRef nameOf(StringRef logged) {
  return logged.split('[').first;
}

class Warp {
public:
  Warp(const Program &program, uint64_t n, int64_t sm, int warp, Replayed &replayed)
      : program(program), n(n), sm(sm), role(warp == 0   ? 0
                                             : warp == 1 ? 1
                                             : warp < 10 ? 2
                                                         : 3),
        code(program.code[role]), replayed(replayed) {
    for (const Instr &instr : code)
      marks.push_back(marksOf(instr));
    // What tells trip counts may be read anywhere: the routing table.
    KernelOp kernel = program.kernel;
    if (llvm::any_of(kernel.getOps<SymbolOp>(), [](SymbolOp symbol) { return symbol.getAfter(); }))
      for (const Shared &buffer : program.shared)
        if (BufferOp op = buffer.op; op.getElement().isInteger(32) && op.getOffset())
          tables.push_back({int64_t(*op.getOffset()), int64_t(*op.getOffset()) + op.byteSize(),
                            /*mayWrite=*/false});
  }

  /// The first thing that is wrong, with its line.
  std::optional<Finding> run(ArrayRef<Logged> steps) {
    Place begin;
    begin.dims.assign(program.maxDepth + 1, 0);
    begin.dims[0] = sm;
    begin.uses.assign(program.edges.size(), 0);
    std::vector<Place> places;
    seen.clear();
    expand(std::move(begin), places);
    const Logged *between = nullptr;
    for (const Logged &step : steps) {
      if (step.text == "between") {
        between = &step;
        continue;
      }
      ++replayed.steps;
      std::vector<Place> next;
      std::string wrong;
      std::set<std::string> expected;
      seen.clear();
      for (const Place &place : places) {
        if (place.pc == code.size())
          continue;
        const std::vector<std::string> &here = marks[place.pc];
        const auto mark = llvm::find(here, step.text);
        if (mark == here.end()) {
          for (const std::string &other : here)
            expected.insert("'" + other + "'");
          continue;
        }
        std::string why = between ? checkBetween(place, *between) : "";
        Place after = place;
        if (why.empty())
          why = take(after, step, mark - here.begin());
        if (why.empty())
          expand(std::move(after), next);
        else if (wrong.empty())
          wrong = why;
      }
      if (next.empty()) {
        if (wrong.empty())
          wrong = "'" + step.text.str() + "' comes where the role regions have " +
                  (expected.empty() ? "no step" : llvm::join(expected, " or "));
        return Finding{step.number, wrong};
      }
      places = std::move(next);
      between = nullptr;
    }
    std::string wrong;
    for (const Place &place : places) {
      if (place.pc != code.size())
        continue;
      const std::string why = between ? checkBetween(place, *between) : "";
      if (why.empty())
        return std::nullopt;
      wrong = why;
    }
    if (wrong.empty())
      wrong = "the warp ends where the role regions go on with '" +
              (places.empty() || places[0].pc == code.size()
                   ? std::string("nothing")
                   : llvm::join(marks[places[0].pc], "' or '")) +
              "'";
    return Finding{steps.empty() ? 0 : steps.back().number, wrong};
  }

private:
  //===--------------------------------------------------------------------===//
  // Ways through the code
  //===--------------------------------------------------------------------===//

  /// Adds the places with a mark to come that can be reached without one.
  void expand(Place place, std::vector<Place> &places) {
    std::vector<Place> work = {std::move(place)};
    while (!work.empty()) {
      Place at = std::move(work.back());
      work.pop_back();
      const uint64_t position = uint64_t(at.pc) << 32 | at.begun;
      if (!seen.insert({position, {at.dims.begin(), at.dims.end()}}).second)
        continue;
      if (at.pc == code.size()) {
        places.push_back(std::move(at));
        continue;
      }
      const Instr &instr = code[at.pc];
      switch (instr.kind) {
      case Instr::Stage:
        at.pc = sm >= instr.sms ? instr.end : at.pc + 1;
        work.push_back(std::move(at));
        break;
      case Instr::LoopBegin: {
        const verify::Loop &loop = program.loops[instr.loop];
        at.dims[loop.dim] = 0;
        const auto [least, most] = tripsOf(loop, at);
        if (least == 0) {
          Place past = at;
          past.pc = instr.end;
          work.push_back(std::move(past));
        }
        if (most > 0) {
          ++at.pc;
          work.push_back(std::move(at));
        }
        break;
      }
      case Instr::LoopEnd: {
        const verify::Loop &loop = program.loops[instr.loop];
        const int64_t done = ++at.dims[loop.dim];
        const auto [least, most] = tripsOf(loop, at);
        if (done >= least) {
          Place past = at;
          past.dims[loop.dim] = 0;
          past.pc = code[instr.end].end;
          work.push_back(std::move(past));
        }
        if (done < most) {
          at.pc = instr.end + 1;
          work.push_back(std::move(at));
        }
        break;
      }
      default: {
        const bool isFree =
            (instr.kind == Instr::Compute && !instr.publishes) || instr.kind == Instr::Refill;
        const bool maySkip = isFree || isWhole(at) || instr.kind == Instr::Pace ||
                             (instr.kind == Instr::Poll && mayPollNothing(cast<PollOp>(instr.op)));
        if (!isFree)
          places.push_back(at);
        if (maySkip) {
          at.begun = 0;
          addTouched(instr, at);
          ++at.pc;
          work.push_back(std::move(at));
        }
      }
      }
    }
  }

  /// Least and most turns of a loop: dynamic ones, and lists of tiles, may be short.
  std::pair<int64_t, int64_t> tripsOf(const verify::Loop &loop, const Place &place) const {
    if (loop.symbol >= 0)
      return {program.symbols[loop.symbol].min, program.symbols[loop.symbol].max};
    const int64_t trips = evalLeast(loop.trips, place.dims.data());
    ForOp op = loop.op;
    return {op.getIterate() ? 0 : trips, trips};
  }

  //===--------------------------------------------------------------------===//
  // One step
  //===--------------------------------------------------------------------===//

  std::string onEdge(StringRef verb, const Instr &instr, StringRef order) const {
    return (verb + " @" + Program::nameOf(program.edges[instr.edge].op) + " " + order).str();
  }

  /// What a step shows in the log: one mark, or one for each exchange that it publishes to.
  std::vector<std::string> marksOf(const Instr &instr) const {
    switch (instr.kind) {
    case Instr::Wait:
    case Instr::Peek:
      return {onEdge("wait", instr, "acquire.cta")};
    case Instr::Acquire:
      return {onEdge("acquire", instr, "acquire.cta")};
    case Instr::Signal:
      return {onEdge("signal", instr, "release.cta")};
    case Instr::Release:
      return {onEdge("release", instr, "release.cta")};
    case Instr::Copy:
      return {onEdge("copy", instr, "async.cta")};
    case Instr::Pace:
      return {onEdge("pace", instr, "relaxed.cta")};
    case Instr::Poll:
      return {onEdge("wait", instr, "relaxed.gpu")};
    case Instr::Compute: {
      std::vector<std::string> marks;
      for (const Access &access : program.accessesOf(instr))
        if (access.isWrite && !access.isShared &&
            program.globals[access.decl].kind == Global::Exchange) {
          auto exchange = cast<ExchangeOp>(program.globals[access.decl].op);
          std::string mark = "signal @" + exchange.getEdge().str() + " relaxed.gpu";
          if (!llvm::is_contained(marks, mark))
            marks.push_back(std::move(mark));
        }
      return marks;
    }
    case Instr::Rearm:
      return {rearmMark(cast<ExchangeOp>(program.globals[instr.exchange].op))};
    case Instr::LaunchWait:
      return {kLaunchWait.str()};
    case Instr::LaunchDependents:
      return {kLaunchDependents.str()};
    default:
      return {};
    }
  }

  /// Whether a poll or publication has shown all its marks, and may be over.
  bool isWhole(const Place &place) const {
    return place.begun != 0 && place.begun == (uint32_t(1) << marks[place.pc].size()) - 1;
  }

  /// Does the step that stands at `place` and shows its mark number `mark`; "" or what is wrong.
  std::string take(Place &place, const Logged &step, size_t mark) {
    const Instr &instr = code[place.pc];
    std::string wrong;
    place.spans.clear();
    place.written.clear();
    addTouched(instr, place); // of a poll or publication, which may go on
    switch (instr.kind) {
    case Instr::Wait:
    case Instr::Acquire:
    case Instr::Peek:
      wrong = checkBarrier(instr, place.uses[instr.edge], "wait", step);
      place.uses[instr.edge] += instr.kind != Instr::Peek;
      break;
    case Instr::Signal:
    case Instr::Release:
      wrong = checkBarrier(instr, place.uses[instr.edge], "arrive", step);
      ++place.uses[instr.edge];
      break;
    case Instr::Pace: {
      const int64_t window = cast<PaceOp>(instr.op).getWindow();
      if (int64_t(place.uses[instr.edge]) < window)
        wrong = "waits for a copy that is not there";
      else
        wrong = checkBarrier(instr, place.uses[instr.edge] - window, "wait", step);
      break;
    }
    case Instr::Copy:
      wrong = checkBarrier(instr, place.uses[instr.edge], "arrive", step);
      if (wrong.empty())
        wrong = checkCopy(instr, place, step);
      ++place.uses[instr.edge];
      break;
    case Instr::Poll:
    case Instr::Compute:
      wrong = checkWords(instr, place, step);
      break;
    case Instr::Rearm:
      wrong = checkRearm(instr, step);
      break;
    default:
      break;
    }
    if (wrong.empty())
      wrong = checkShared(place, step);
    const bool mayRepeat = instr.kind == Instr::Poll || instr.kind == Instr::Compute;
    if (mayRepeat)
      place.begun |= uint32_t(1) << mark; // and may go on
    else
      ++place.pc;
    return wrong;
  }

  /// Every barrier operation of the step is on the slot of that use.
  std::string checkBarrier(const Instr &instr, uint64_t use, StringRef kind, const Logged &step) {
    const verify::Edge &edge = program.edges[instr.edge];
    EdgeOp op = edge.op;
    const int64_t slot = int64_t(use) % edge.slots, expected = *op.getOffset() + 8 * slot;
    int found = 0;
    for (const Line &line : step.lines) {
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

  std::string checkCopy(const Instr &instr, const Place &place, const Logged &step) {
    RingOp ring = program.rings[instr.ring].op;
    const verify::Edge &edge = program.edges[instr.edge];
    EdgeOp edgeOp = edge.op;
    const int64_t slot = place.uses[instr.edge] % edge.slots;
    const int64_t target = *ring.getOffset() + slot * ring.getSlotBytes();
    const Access &source = program.accessesOf(instr).front();
    int copies = 0;
    for (const Line &line : step.lines) {
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
        return range() + llvm::formatv("expected it inside bytes [{0}, {1}) of a matrix", first,
                                       first + length)
                             .str();
    }
    replayed.ranges += copies;
    return copies ? "" : "'" + step.text.str() + "' copies nothing";
  }

  /// The bytes of a set of an exchange that an access declares.
  struct Words {
    int64_t setBegin, setEnd, rowBytes, begin, end, colBegin, colEnd;
    bool hasAnyRow;
  };
  Words wordsOf(const Access &access, const Place &place) const {
    auto exchange = cast<ExchangeOp>(program.globals[access.decl].op);
    const int64_t rowBytes = exchange.wordsPerRow() * 4, setBytes = rowBytes * exchange.rows();
    const uint64_t age = access.isCurrent() ? 0 : 1, sets = exchange.getSets();
    const int64_t set = sets == 1 ? 0 : int64_t((n + sets - age) % sets);
    const Rect rect = access.at(place.dims.data());
    const int64_t bytes = exchange.getElement().getIntOrFloatBitWidth() / 8;
    Words words{set * setBytes, (set + 1) * setBytes, rowBytes, 0, 0, 0,
                rowBytes,       access.table >= 0};
    if (!exchange.hasTriples()) {
      words.colBegin = rect.col * bytes;
      words.colEnd = std::min(rowBytes, (rect.colEnd() * bytes + 3) / 4 * 4);
    }
    words.begin = words.setBegin + (words.hasAnyRow ? 0 : rect.row * rowBytes);
    words.end = words.hasAnyRow ? words.setEnd : words.setBegin + rect.rowEnd() * rowBytes;
    return words;
  }

  static bool isInside(const Words &words, int64_t begin, int64_t end) {
    if (begin < words.begin || end > words.end)
      return false;
    if (words.colBegin == 0 && words.colEnd == words.rowBytes)
      return true;
    const int64_t column = (begin - words.setBegin) % words.rowBytes;
    return column >= words.colBegin && column + (end - begin) <= words.colEnd;
  }

  /// Loads of a poll and stores of a publication lie in what it declares, in the right set.
  std::string checkWords(const Instr &instr, const Place &place, const Logged &step) {
    const bool isPoll = instr.kind == Instr::Poll;
    for (const Line &line : step.lines) {
      if (line.words[0] != "load" && line.words[0] != "store")
        continue;
      const StringRef name = nameOf(line.words[1]);
      const int64_t begin = line.at(2), end = line.at(3);
      const bool isStore = line.words[0] == "store";
      bool isExchange = false, isDeclared = false;
      std::string expected;
      for (const Access &access : program.accessesOf(instr)) {
        if (access.isShared || program.globals[access.decl].kind != Global::Exchange ||
            Program::nameOf(program.globals[access.decl].op) != name)
          continue;
        isExchange = true;
        if (access.isWrite != isStore)
          continue;
        const Words words = wordsOf(access, place);
        // Lanes without an item of their own look at the first of the tile's rows again.
        const bool isIdle =
            isPoll && begin >= words.setBegin && end <= words.setEnd && end - begin <= 16;
        isDeclared |= isInside(words, begin, end) || isIdle;
        expected = llvm::formatv("bytes [{0}, {1}), columns [{2}, {3})", words.begin, words.end,
                                 words.colBegin, words.colEnd);
      }
      if (isDeclared) {
        ++replayed.ranges;
        continue;
      }
      if (!isExchange && !isStore)
        continue; // constants, the step's descriptor
      return llvm::formatv("line {0}: '{1}' {2}s bytes [{3}, {4}) of {5}, expected {6}",
                           line.number, step.text, line.words[0], begin, end, name,
                           expected.empty() ? "nothing of it" : expected);
    }
    return "";
  }

  std::string checkRearm(const Instr &instr, const Logged &step) {
    auto exchange = cast<ExchangeOp>(program.globals[instr.exchange].op);
    const int64_t setBytes = exchange.wordsPerRow() * 4 * exchange.rows();
    const uint64_t sets = exchange.getSets();
    const int64_t set = int64_t((n + 1) % sets); // what the next launch writes
    for (const Line &line : step.lines)
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

  //===--------------------------------------------------------------------===//
  // What steps without a mark touch
  //===--------------------------------------------------------------------===//

  void addTouched(const Instr &instr, Place &place) const {
    for (const Access &access : program.accessesOf(instr)) {
      if (!access.isShared) {
        if (access.isWrite && program.globals[access.decl].kind == Global::Buffer)
          place.written.push_back(Program::nameOf(program.globals[access.decl].op));
        continue;
      }
      BufferOp op = program.shared[access.decl].op;
      if (!op.getOffset())
        continue;
      // Whole rows: padding belongs to them.
      const Rect rect = access.at(place.dims.data());
      const int64_t stride = op.rowStride(), size = stride * op.rows();
      const bool isAny = access.table >= 0;
      for (int64_t slot = 0; slot < int64_t(op.getSlots()); ++slot) {
        const int64_t base = int64_t(*op.getOffset()) + slot * size;
        place.spans.push_back({base + (isAny ? 0 : rect.row * stride),
                               base + (isAny ? size : rect.rowEnd() * stride), access.isWrite});
      }
    }
    if (instr.ring >= 0 && instr.kind == Instr::Compute) {
      RingOp ring = program.rings[instr.ring].op;
      place.spans.push_back({int64_t(*ring.getOffset()),
                             int64_t(*ring.getOffset() + ring.getSlots() * ring.getSlotBytes()),
                             false});
    }
  }

  std::string checkBetween(const Place &place, const Logged &between) {
    Place whole = place;
    if (place.pc < code.size())
      addTouched(code[place.pc], whole); // what it does before its mark
    for (const Line &line : between.lines) {
      if (line.words[0] == "barrier" || line.words[0] == "copy")
        return llvm::formatv("line {0}: a {1} between marks", line.number, line.words[0]);
      if (line.words[0] == "load")
        for (const Global &global : program.globals)
          if (global.kind == Global::Exchange &&
              Program::nameOf(global.op) == nameOf(line.words[1]))
            return llvm::formatv("line {0}: reads exchange @{1} between marks", line.number,
                                 nameOf(line.words[1]));
      if (line.words[0] == "store" && !llvm::is_contained(whole.written, nameOf(line.words[1])))
        return llvm::formatv("line {0}: stores to {1}, which no step here declares", line.number,
                             line.words[1]);
    }
    return checkShared(whole, between);
  }

  std::string checkShared(const Place &place, const Logged &step) {
    for (const Line &line : step.lines) {
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

  std::string bufferAt(int64_t offset) const {
    std::string names;
    for (const Shared &buffer : program.shared)
      if (BufferOp op = buffer.op; op.getOffset() && int64_t(*op.getOffset()) <= offset &&
                                   offset < int64_t(*op.getOffset()) + op.byteSize())
        names += (names.empty() ? " (@" : ", @") + op.getSymName().str();
    return names.empty() ? "" : names + ")";
  }

  const Program &program;
  const uint64_t n;
  const int64_t sm;
  const int role;
  const std::vector<Instr> &code;
  Replayed &replayed;
  llvm::SmallVector<Span, 4> tables;
  std::vector<std::vector<std::string>> marks; ///< of each step of the code
  std::set<std::pair<uint64_t, std::vector<int64_t>>> seen;
};

/// A launch of the log: by (SM, warp) its steps.
struct LoggedLaunch {
  int number;
  StringRef kernel;
  uint64_t n = 0;
  std::map<std::pair<int, int>, std::vector<Logged>> warps;
};

/// Fails with the line that cannot be read.
llvm::Expected<std::vector<LoggedLaunch>> readLog(StringRef log) {
  std::vector<LoggedLaunch> launches;
  std::vector<Logged> *steps = nullptr;
  int number = 0;
  auto bad = [&](StringRef line) {
    return llvm::createStringError(
        llvm::formatv("line {0}: expected a line of a host log (runtime/host/log.h) but got '{1}'",
                      number, line));
  };
  while (!log.empty()) {
    auto [text, rest] = log.split('\n');
    log = rest;
    ++number;
    if (text.empty())
      continue;
    Line line{number, {}};
    text.split(line.words, ' ', -1, false);
    if (text.starts_with("  ")) {
      static const std::map<StringRef, size_t> kWords = {
          {"barrier", 3}, {"copy", 8}, {"load", 5}, {"store", 5}, {"shared", 4}};
      auto known = kWords.find(line.words.empty() ? "" : line.words[0]);
      if (!steps || steps->empty() || known == kWords.end() || line.words.size() != known->second)
        return bad(text);
      steps->back().lines.push_back(std::move(line));
      continue;
    }
    if (line.words[0] == "launch" && line.words.size() == 4) {
      launches.push_back({number, line.words[2], 0, {}});
      if (line.words[3].getAsInteger(10, launches.back().n))
        return bad(text);
      continue;
    }
    int sm = 0, warp = 0;
    if (launches.empty() || line.words.size() < 3 || line.words[0].getAsInteger(10, sm) ||
        line.words[1].getAsInteger(10, warp) || warp < 0 || warp > 10)
      return bad(text);
    steps = &launches.back().warps[{sm, warp}];
    steps->push_back({number, text.substr(line.words[2].data() - text.data()), {}});
  }
  return launches;
}

} // namespace

Replayed replay(ModuleOp module, StringRef log) {
  Replayed replayed;
  auto launches = readLog(log);
  if (!launches) {
    replayed.findings.push_back({0, llvm::toString(launches.takeError())});
    return replayed;
  }
  std::map<StringRef, std::unique_ptr<Program>> programs;
  for (const LoggedLaunch &launch : *launches) {
    auto kernel = module.lookupSymbol<KernelOp>(launch.kernel);
    if (!kernel)
      continue;
    if (kernel.isLooping() || kernel.getRanks() > 1) {
      replayed.findings.push_back(
          {launch.number, "kernel " + launch.kernel.str() +
                              " loops over launches or is of several ranks: replay a plan of "
                              "--scope=layer and one rank instead"});
      return replayed;
    }
    std::unique_ptr<Program> &program = programs[launch.kernel];
    if (!program)
      program = std::make_unique<Program>(kernel);
    ++replayed.launches;
    for (int64_t sm = 0; sm < int64_t(kernel.getSms()); ++sm)
      for (int warp = 0; warp <= 10; ++warp) {
        static const std::vector<Logged> kNothing;
        auto found = launch.warps.find({int(sm), warp});
        auto wrong = Warp(*program, launch.n, sm, warp, replayed)
                         .run(found == launch.warps.end() ? kNothing : found->second);
        if (wrong)
          replayed.findings.push_back(
              {wrong->line,
               llvm::formatv("line {0}: launch {1} ({2}), SM {3}, warp {4}: {5}", wrong->line,
                             launch.n, launch.kernel, sm, warp, wrong->text)});
      }
  }
  return replayed;
}

} // namespace megalith::lint
