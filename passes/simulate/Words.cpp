//===- Words.cpp - What SMs store and others poll -------------------------===//

#include "passes/simulate/Engine.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace mlir;
using namespace megalith::task;
using megalith::verify::Access;
using megalith::verify::Instr;

namespace megalith::simulate {

/// Loads of epoch words that a lane has under way at a time.
constexpr int64_t kRecordBatch = 12;

/// Bytes of a merge tile's records, of all splits of its row; `key` as keyOf has it.
static int64_t recordBytes(const Facts &facts, int64_t key) {
  const auto row = size_t((key - 1) / facts.kvHeads);
  if (row >= facts.splits.size())
    return 0;
  return facts.splits[row] * llvm::divideCeil(facts.headDim / facts.mergeParts + 2, 3) * 16;
}

/// Which words of an exchange: 0 those that no table names or, in a poll, all of them, else those
/// of one table entry.
int64_t Engine::keyOf(const Launch &launch, const Warp &warp, const Instr &,
                      const Access &access) const {
  if (access.table < 0)
    return 0;
  const int64_t argument = access.argument->eval(warp.dims.data());
  if (access.axiom == Axiom::Uniform)
    return 1 + argument;
  const Facts &facts = factsOf(launch, warp);
  if (access.isWrite) { // an attention tile's
    const std::vector<Tile> &own = facts.tiles[size_t(warp.sm)];
    const Tile &tile = own[size_t(argument)];
    return 1 + tile.sequence * facts.kvHeads + tile.kvHead;
  }
  const int64_t head = (warp.sm + argument * sms) / facts.mergeParts;
  const int64_t row = head / facts.qHeads;
  return 1 + row * facts.kvHeads + head % facts.qHeads / (facts.qHeads / facts.kvHeads);
}

/// Among `words`: the exchange of an access, in the turn that the instruction is of.
int64_t Engine::stateOf(const Launch &launch, const Instr &instr, const Access &access) {
  return int64_t(launch.program->stateOf(instr.launch, access.decl));
}

/// What polls may call the words that a step publishes.
SmallVector<int64_t, 2> Engine::keysOf(const Launch &launch, const Warp &warp, const Instr &instr,
                                       const Access &access) const {
  SmallVector<int64_t, 2> keys = {0};
  if (const int64_t key = keyOf(launch, warp, instr, access))
    keys.push_back(key);
  return keys;
}

/// What each exchange's polls wait for.
void Engine::countWords(Launch &launch) {
  for (int role = 0; role < verify::kRoles; ++role)
    for (int64_t sm = 0; sm < sms; ++sm)
      countPublishing(launch, role, sm);
}

void Engine::countPublishing(Launch &launch, int role, int64_t sm) {
  const std::vector<Instr> &code = launch.program->code[role];
  Warp warp{.sm = sm, .role = role};
  warp.dims.assign(launch.program->maxDepth + 1, 0);
  warp.dims[0] = sm;
  for (uint32_t at = 0; at < code.size();) {
    const Instr &instr = code[at];
    warp.turn = instr.launch;
    if (instr.kind == Instr::Stage && sm >= instr.sms) {
      at = instr.end;
      continue;
    }
    if (instr.kind == Instr::LoopBegin) {
      const verify::Loop &loop = launch.program->loops[size_t(instr.loop)];
      const int64_t trips = tripsOf(launch, loop, sm, warp.dims);
      if (trips <= 0) {
        at = instr.end;
        continue;
      }
      warp.frames.push_back({instr.loop, trips, 0});
      warp.dims[loop.dim] = 0;
    } else if (instr.kind == Instr::LoopEnd) {
      Frame &frame = warp.frames.back();
      const unsigned dim = launch.program->loops[size_t(frame.loop)].dim;
      if (++frame.index < frame.trips) {
        warp.dims[dim] = frame.index;
        at = instr.end + 1;
        continue;
      }
      warp.dims[dim] = 0;
      warp.frames.pop_back();
    } else if (instr.publishes) {
      for (const Access &access : launch.program->accessesOf(instr))
        if (access.isWrite && !access.isShared)
          for (int64_t key : keysOf(launch, warp, instr, access))
            launch.words[{stateOf(launch, instr, access), key}].missing += kWarpsOf[role];
    }
    ++at;
  }
}

void Engine::publish(Launch &launch, Warp &warp, const Instr &instr) {
  for (const Access &access : launch.program->accessesOf(instr)) {
    if (!access.isWrite || access.isShared ||
        launch.program->globals[size_t(access.decl)].kind != verify::Global::Exchange)
      continue;
    for (int64_t key : keysOf(launch, warp, instr, access)) {
      Words &words = launch.words[{stateOf(launch, instr, access), key}];
      words.first = std::min(words.first, now);
      words.last = std::max(words.last, now);
      words.sum += now;
      ++words.count;
      if (--words.missing == 0) {
        for (int64_t other : words.waiting)
          resume(other, now);
        words.waiting.clear();
      }
    }
  }
}

/// How much later `bytes` of an exchange's words are all there because some are other ranks'.
double Engine::hopOf(ExchangeOp exchange, int64_t bytes) const {
  if (!exchange || !exchange.getPeers())
    return 0;
  return hopNs.value_or(costs.hop.at(double(bytes), /*holds=*/true));
}

void Engine::setPolling(Warp &warp, bool polls) {
  if (warp.polls == polls)
    return;
  warp.polls = polls;
  polling += polls ? 1 : -1;
  memory.setPolling(now, double(polling) / double(kConsumers * sms));
}

/// The words that an access of a poll waits for, of this launch or of the one before; null if they
/// are of one that is over, or it is none of words.
Engine::Words *Engine::wordsOf(Launch &launch, const Warp &warp, const Instr &instr,
                               const Access &read) {
  if (read.isWrite || read.isShared)
    return nullptr;
  auto exchange = dyn_cast<ExchangeOp>(launch.program->globals[size_t(read.decl)].op);
  Launch *source = &launch;
  const bool isOwn = launch.program->isOwn(read, instr);
  if (!isOwn)
    source = warp.launch > 0 ? &launches[size_t(warp.launch) - 1] : nullptr;
  if (!source || !exchange || !exchange.isSelfValidating())
    return nullptr;
  // Exchanges have one name in all kernels, but each its own number for them.
  int64_t decl = read.decl;
  if (isOwn)
    decl = int64_t(launch.program->stateOf(launch.program->publisherOf(read, instr), read.decl));
  else if (source->program != launch.program)
    for (auto [i, global] : llvm::enumerate(source->program->globals))
      if (verify::Program::nameOf(global.op) == exchange.getSymName())
        decl = int64_t(i);
  auto found = source->words.find({decl, keyOf(launch, warp, instr, read)});
  return found == source->words.end() ? nullptr : &found->second;
}

Engine::Outcome Engine::poll(int64_t id, const Instr &instr) {
  if (!isNow(id))
    return Outcome::Blocked;
  Warp &warp = warps[size_t(id)];
  Launch &launch = launches[size_t(warp.launch)];
  if (warp.phase == 2) { // the words are here
    setPolling(warp, false);
    if (instr.publishes) // a row of the stream: normed and handed on in its poll
      publish(launch, warp, instr);
    return Outcome::Next;
  }
  // Words first: what is read beside them, as gains, was there before.
  const Access *read = nullptr, *write = nullptr;
  for (const Access &access : launch.program->accessesOf(instr))
    if (access.isWrite)
      write = &access;
    else if (!read || isa<ExchangeOp>(launch.program->globals[size_t(access.decl)].op))
      read = &access;
  const bool isConsumer = warp.role == kConsumer;
  const verify::Rect rect = read->at(warp.dims.data());
  auto exchange = dyn_cast<ExchangeOp>(launch.program->globals[size_t(read->decl)].op);
  const int64_t width =
      exchange ? rect.cols * (exchange.getElement().getIntOrFloatBitWidth() / 8) : rect.cols;
  const int64_t key = keyOf(launch, warp, instr, *read);
  // A row a warp, and nothing for the rest: poll_own_row.
  const StringRef callee = cast<PollOp>(instr.op).getCallee();
  const bool byRow = isConsumer && callee.starts_with("poll_own_row");
  if (byRow && warp.number >= rect.rows)
    return Outcome::Next;
  double last = -std::numeric_limits<double>::infinity(), mean = last, first = last;
  for (const Access &access : launch.program->accessesOf(instr)) {
    // Several places of one exchange are taken for one.
    const bool isMain = &access == read;
    Words *words =
        isMain || access.decl != read->decl ? wordsOf(launch, warp, instr, access) : nullptr;
    if (!words)
      continue;
    if (words->missing > 0) {
      setPolling(warp, true);
      if (warp.phase == 0 && warp.inStage)
        warp.phase = 1;
      words->waiting.push_back(id);
      return Outcome::Blocked;
    }
    const double hop = hopOf(exchange, rect.rows * width);
    last = std::max(last, words->last + hop);
    if (isMain) {
      mean = words->sum / double(words->count) + hop;
      first = words->first; // perhaps of this rank
    }
  }
  setPolling(warp, true);
  const double load = memory.inFlight(), before = warp.time;
  const bool isMerge = key > 0 && read->axiom != Axiom::Uniform;
  const int64_t records = isMerge ? recordBytes(factsOf(launch, warp), key) : 0;
  if (isConsumer) {
    const int64_t rows = byRow ? 1 : rect.rows;
    const int64_t mine = byRow ? width : rows * width / kConsumers;
    // Ways were measured of words that all SMs store at about one time, so all rows' counts from
    // the mean. Of words that are stored one after another most were read before the last come.
    const auto way = [&](int64_t rows) {
      return isMerge                            ? costs.recordsOf(records, load)
             : byRow                            ? costs.ownRowsOf(rows, load)
             : callee.starts_with("poll_heads") ? costs.heads.at(load)
                                                : costs.arrivalOf(rows, width, load);
    };
    const double sweep = isMerge // a share of them
                             ? costs.sweepOf(records / kConsumers, kRecordBatch, load, true)
                             : costs.sweepOf(mine, 8, load);
    // Who comes behind the words finds them at the first look.
    const bool areThere = last + costs.oneWay <= warp.time;
    warp.time += sweep;
    if (!areThere) {
      // Each warp has words of its own, the mean so much sooner than the last, but none sooner than
      // any are stored.
      const bool isByChunk = !isMerge && !byRow && !callee.starts_with("poll_heads");
      const double rank = double(kConsumers - 1 - warp.number) / (kConsumers - 1);
      const double lead = isByChunk ? 2 * rank * costs.earlyOf(rows, width, load) : 0;
      warp.time = std::max({warp.time, first + costs.oneWay, last + way(1) - lead,
                            isMerge ? last : mean + way(rect.rows) - lead});
    }
    const Price &after = launch.prices->afterPoll(warp.role, warp.at);
    warp.time += warp.seen[warp.at] ? after.warm : after.first;
    warp.seen[warp.at] = true;
    if (warp.inStage) {
      warp.times.stages.back().ready = warp.time;
      warp.times.stages.back().waited += warp.time - before;
    }
  } else {
    int64_t bytes = rect.rows * width, batch = 8;
    if (key > 0 && read->axiom == Axiom::Uniform) {
      bytes = width * factsOf(launch, warp).entries[size_t(key) - 1].pairs;
      batch = std::min<int64_t>(llvm::divideCeil(2 * width, 512), 8); // two rows
    } else if (isMerge) {
      batch = kRecordBatch;
      bytes = records;
    } else if (write && write->isShared) {
      const verify::Rect target = write->at(warp.dims.data());
      const Tile *tile = tileOf(launch, warp);
      const int64_t element = exchange ? exchange.getElement().getIntOrFloatBitWidth() / 8 : 2;
      bytes = std::min(bytes, target.cols * element * (tile ? 1 : target.rows));
      if (tile && tile->goesOn && !tile->isNew) // its queries are there
        bytes = 0;
    }
    // A hop's way has a look of one load a lane in it; what more there is comes behind.
    const double sweep = costs.sweepOf(bytes, batch, load, /*epochs=*/batch > 8);
    warp.time = std::max(warp.time + sweep, last + costs.arrivalOf(1, 4096, load) +
                                                std::max(sweep - costs.look.at(load), 0.0));
  }
  warp.phase = 2;
  return isNow(id) ? (setPolling(warp, false), Outcome::Next) : Outcome::Blocked;
}

} // namespace megalith::simulate
