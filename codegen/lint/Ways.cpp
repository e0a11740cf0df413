//===- Ways.cpp - The ways through a role's code --------------------------===//

#include "codegen/lint/Ways.h"

#include "codegen/lint/Regions.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace megalith;
using namespace megalith::lint;
using namespace megalith::task;
using namespace megalith::verify;

Ways::Ways(const Program &program, int role, int64_t sm, int64_t first, int64_t end)
    : program(program), role(role), sm(sm), code(program.code[role]), first(first), end(end) {
  for (const Instr &instr : code)
    marks.push_back(marksOf(instr));
}

Place Ways::begin() const {
  Place place;
  place.launch = first;
  place.pc = bodyBegin(first);
  place.dims.assign(program.maxDepth + 1, 0);
  place.dims[0] = sm;
  place.uses.assign(program.edges.size(), 0);
  return place;
}

/// Which of Program::launches stands for a launch: those behind the last of a row are as it is.
size_t Ways::bodyOf(int64_t launch) const {
  return size_t(llvm::upper_bound(program.launches, launch) - program.launches.begin()) - 1;
}

uint32_t Ways::bodyBegin(int64_t launch) const {
  const size_t body = bodyOf(launch);
  return body ? program.launchEnds[role][body - 1] : 0;
}

bool Ways::isWhole(const Place &place) const {
  return place.begun != 0 && place.begun == (uint32_t(1) << marks[place.pc].size()) - 1;
}

void Ways::expand(Place place, std::vector<Place> &places) {
  std::vector<Place> work = {std::move(place)};
  while (!work.empty()) {
    Place at = std::move(work.back());
    work.pop_back();
    const std::array position = {uint64_t(at.pc) << 32 | at.begun, uint64_t(at.launch)};
    if (!seen.insert({position, {at.dims.begin(), at.dims.end()}}).second)
      continue;
    if (at.pc == program.launchEnds[role][bodyOf(at.launch)]) {
      const bool isLast = at.launch + 1 == end;
      if (isLast) {
        at.pc = uint32_t(code.size());
        places.push_back(std::move(at));
        continue;
      }
      at.pc = bodyBegin(++at.launch);
      work.push_back(std::move(at));
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
std::pair<int64_t, int64_t> Ways::tripsOf(const verify::Loop &loop, const Place &place) const {
  if (loop.symbol >= 0)
    return {program.symbols[loop.symbol].min, program.symbols[loop.symbol].max};
  const int64_t trips = evalLeast(loop.trips, place.dims.data());
  ForOp op = loop.op;
  return {op.getIterate() ? 0 : trips, trips};
}

std::vector<std::string> Ways::marksOf(const Instr &instr) const {
  auto onEdge = [&](StringRef verb, StringRef order) {
    return (verb + " @" + Program::nameOf(program.edges[instr.edge].op) + " " + order).str();
  };
  switch (instr.kind) {
  case Instr::Wait:
  case Instr::Peek:
    return {onEdge("wait", "acquire.cta")};
  case Instr::Acquire:
    return {onEdge("acquire", "acquire.cta")};
  case Instr::Signal:
    return {onEdge("signal", "release.cta")};
  case Instr::Release:
    return {onEdge("release", "release.cta")};
  case Instr::Copy:
    return {onEdge("copy", "async.cta")};
  case Instr::Pace:
    return {onEdge("pace", "relaxed.cta")};
  case Instr::Poll: {
    ExchangeOp exchange = exchangeOf(program.kernel, Program::nameOf(program.edges[instr.edge].op));
    return {exchange ? pollMark(exchange) : onEdge("wait", "relaxed.gpu")};
  }
  case Instr::Compute: {
    std::vector<std::string> marks;
    for (const Access &access : program.accessesOf(instr))
      if (access.isWrite && !access.isShared &&
          program.globals[access.decl].kind == Global::Exchange) {
        std::string mark = publishMark(cast<ExchangeOp>(program.globals[access.decl].op));
        if (!llvm::is_contained(marks, mark))
          marks.push_back(std::move(mark));
      }
    return marks;
  }
  case Instr::Rearm:
    return {rearmMark(cast<ExchangeOp>(program.globals[instr.exchange].op))};
  case Instr::LaunchWait:
    return {instr.edge >= 0 ? onEdge("wait", "acquire.gpu") : kLaunchWait.str()};
  case Instr::LaunchDone:
    return {onEdge("signal", "release.gpu")};
  case Instr::LaunchDependents:
    return {kLaunchDependents.str()};
  default:
    return {};
  }
}

void Ways::addTouched(const Instr &instr, Place &place) const {
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
