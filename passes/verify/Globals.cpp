#include "passes/verify/Globals.h"

using namespace mlir;
using namespace megalith;
using namespace megalith::task;
using namespace megalith::verify;

Globals::Globals(const Program &program, const Valuation &valuation, ArrayRef<const Summary *> runs,
                 Faults &faults)
    : program(program), valuation(valuation), runs(runs), faults(faults),
      touched(program.launches.size() * program.globals.size()), reached(touched.size()) {
  for (int role = 0; role < kRoles; ++role)
    collect(role);
}

// Words of this launch are the business of Words.h.
void Globals::collect(int role) {
  SmallVector<const Loop *, 4> loops;
  int64_t sms = program.sms;
  for (const Instr &instr : program.code[role]) {
    if (instr.kind == Instr::Stage)
      sms = instr.sms;
    else if (instr.kind == Instr::LoopBegin)
      loops.push_back(&program.loops[instr.loop]);
    else if (instr.kind == Instr::LoopEnd)
      loops.pop_back();
    for (const Access &access : program.accessesOf(instr)) {
      if (access.isShared)
        continue;
      const bool isExchange = program.globals[access.decl].kind == Global::Exchange;
      if (isExchange && (access.isWrite || (instr.polls && program.isOwn(access, instr))))
        continue;
      sites.push_back({role, &instr, &access, sms, loops});
    }
  }
}

bool Globals::isBoundsOnly(const Site &site) const {
  const Global &global = program.globals[site.access->decl];
  return global.kind == Global::Exchange ||
         (global.kind == Global::Buffer &&
          !(site.access->isWrite && global.mutability == Mutability::Written));
}

bool Globals::check() {
  for (const Site &site : sites) {
    // The same on every SM.
    const bool isUniform =
        isBoundsOnly(site) && site.loops.empty() && !site.access->uses(/*dim=*/0);
    for (int64_t sm = 0; sm < (isUniform ? 1 : site.sms); ++sm) {
      dims.assign(1, sm);
      if (!visit(site, 0))
        return false;
    }
  }
  for (int64_t sm = 0; sm < program.sms; ++sm)
    checkUnwaited(sm);
  return true;
}

// The loops from `level` on, at once if possible. False when there are too many places to look at.
bool Globals::visit(const Site &site, size_t level) {
  if (++places > kMaxStepsOfAll) {
    faults.at(program.kernel, 0)
        << "the kernel touches global memory in more than " << kMaxStepsOfAll
        << " places over all its SMs, too many to prove; make its loops shorter, use fewer SMs or "
           "cut the kernel into several launches";
    return false;
  }
  if (std::optional<Rect> joined = join(site, level)) {
    if (!joined->empty())
      touch(site, *joined);
    return true;
  }
  if (level == site.loops.size()) {
    touch(site, clipped(site, site.access->at(dims.data(), program.ranks - 1,
                                              program.globals[site.access->decl].share)));
    return true;
  }
  const int64_t trips = program.tripsOf(*site.loops[level], valuation, dims.data());
  dims.push_back(0);
  bool isBounded = true;
  for (int64_t i = 0; i < trips && isBounded; ++i) {
    dims.back() = i;
    isBounded = visit(site, level + 1);
  }
  dims.pop_back();
  return isBounded;
}

// A piece is at most eight strips: the last of a slice is what the slice, the stage's own read of
// these weights at tile = SM, has left.
Rect Globals::clipped(const Site &site, Rect rect) const {
  const Global &global = program.globals[site.access->decl];
  if (global.kind != Global::Weights || rect.empty())
    return rect;
  for (int index : site.access->slices) {
    const Rect slice = program.accesses[index].at(dims.data());
    rect.rows = std::min(rect.rowEnd(), slice.rowEnd()) - rect.row;
  }
  rect.rows = std::min(rect.rows, global.rows - rect.row); // the last SM's slice is ragged
  return rect;
}

std::optional<Rect> Globals::join(const Site &site, size_t level) {
  const Global &global = program.globals[site.access->decl];
  Nest nest(*site.access);
  dims.resize(site.loops.size() + 1, 0);
  bool isKnown = true;
  for (size_t i = level; i < site.loops.size() && isKnown; ++i)
    isKnown = nest.enter(program, valuation, *site.loops[i], dims.data());
  std::optional<Rect> rect;
  if (isKnown && !nest.neverRuns())
    reached[program.stateOf(site.instr->launch, site.access->decl)] = true;
  if (isKnown)
    rect = isBoundsOnly(site) ? nest.hull(dims.data()) : nest.join(dims.data());
  if (rect && site.access->attr.getOwn())
    rect->col += (program.ranks - 1) * global.share; // the last rank's is the farthest
  if (rect)
    rect = clipped(site, *rect);
  dims.resize(level + 1);
  if (rect && !rect->empty() && !rect->fits(global.rows, global.cols))
    return std::nullopt; // piece by piece, to name the one that is outside
  return rect;
}

void Globals::touch(const Site &site, const Rect &rect) {
  if (rect.empty())
    return;
  const Access &access = *site.access;
  const Global &global = program.globals[access.decl];
  const int64_t sm = dims.front();
  Operation *op = site.instr->op;
  auto name = [&] { return Program::nameOf(global.op); };
  if (!rect.fits(global.rows, global.cols)) {
    faults.at(op, sm) << "touches @" << name() << ' ' << describe(rect) << ", outside its "
                      << global.rows << " x " << global.cols << "; expected a place inside";
    return;
  }
  const bool isBuffer = global.kind == Global::Buffer;
  if (isBuffer && global.mutability == Mutability::Pages &&
      (access.table < 0 || access.axiom != Axiom::Injective))
    faults.at(op, sm)
        << "touches the pages @" << name()
        << " without an injective table, which alone keeps positions apart; add table "
           "@name to the access";
  if (global.kind == Global::Exchange && site.instr->kind == Instr::Copy)
    faults.at(op, sm) << "copies words of exchange @" << name()
                      << ", which only a task.poll may read";
  if (isBuffer && access.isWrite && global.mutability == Mutability::Immutable)
    faults.at(op, sm) << "writes the immutable buffer @" << name();
  Planes &planes = touched[program.stateOf(site.instr->launch, access.decl)];
  if (isBoundsOnly(site) || planes.add(Planes::keyOf(access, dims.data()), rect))
    return;
  if (isBuffer)
    faults.at(op, sm) << "writes @" << name() << ' ' << describe(rect)
                      << " a second time in this launch; expected tiles that lie apart";
  else
    faults.at(op, sm) << "streams blocks of @" << name() << ' ' << describe(rect)
                      << " that were streamed before in this launch; expected slices that lie "
                         "apart";
}

// Stores of a role that has not waited for the previous launch: faults unless they are empty.
void Globals::checkUnwaited(int64_t sm) {
  for (int role = 0; role < kRoles; ++role)
    for (const Event &event : runs[sm]->unwaited[role]) {
      const Instr &instr = program.code[role][event.instr];
      dims.assign(1, sm);
      llvm::append_range(dims, ArrayRef(runs[sm]->dims).slice(event.dims, instr.depth - 1));
      for (const Access &access : program.accessesOf(instr)) {
        if (access.isShared || !access.isWrite || access.at(dims.data()).empty())
          continue;
        const Global &global = program.globals[access.decl];
        const bool isWords = global.kind == Global::Exchange;
        // A launch of a looping kernel has the pages of its layer to itself.
        if (program.isLooping && !isWords && global.mutability == Mutability::Pages)
          continue;
        faults.at(instr.op, sm)
            << (isWords ? "publishing words" : "storing to global memory")
            << " needs the previous launch to be complete" << program.inLaunch(instr.launch)
            << ": the " << nameOfRole(role)
            << " has no task.launch_wait before this op; expected one, or an edge "
               "from a role that has";
      }
    }
}

void Globals::checkEnds() {
  for (auto [index, global] : llvm::enumerate(program.globals)) {
    int64_t writers = 0;
    int lastWriter = 0;
    std::optional<Planes::Place> hole;
    for (size_t launch = 0; launch < program.launches.size(); ++launch) {
      const Planes &planes = touched[program.stateOf(launch, index)];
      const bool isWeights = global.kind == Global::Weights;
      std::optional<Planes::Place> missing =
          planes.firstMissing(global.rows, global.cols, isWeights);
      if (planes.empty())
        missing = Planes::Place{};
      else
        ++writers, lastWriter = launch, hole = hole ? hole : missing;
      if (std::optional<Planes::Key> gap = planes.firstGap(); gap && isWeights)
        faults.among(global.op) << "is streamed for argument " << gap->argument
                                << " of its table but not for the one before"
                                << program.inLaunch(launch)
                                << "; expected arguments to count from 0";
      if (isWeights && reached[program.stateOf(launch, index)] && missing) {
        InFlightDiagnostic fault = faults.among(global.op);
        fault << "has blocks that no SM streams" << program.inLaunch(launch) << ", the first at "
              << Planes::describe(*missing)
              << "; expected each exactly once: slices that join, and loops over all of them";
        if (Operation *copy = program.userOf(index, /*isWrite=*/false, launch))
          fault.attachNote(copy->getLoc()) << "the " << nameOfTask(copy) << " streams others here";
      }
    }
    // An output is written in one launch.
    if (global.kind != Global::Buffer || global.mutability != Mutability::Written ||
        (writers == 1 && !hole))
      continue;
    InFlightDiagnostic fault = faults.among(global.op);
    if (writers > 1 && !hole)
      fault << "is written in " << writers << " launches; expected one";
    else
      fault << "is not written everywhere, not at "
            << Planes::describe(hole.value_or(Planes::Place{}))
            << "; expected each element exactly once: a task.compute whose writes cover it";
    if (Operation *step = program.userOf(index, /*isWrite=*/true, lastWriter))
      fault.attachNote(step->getLoc())
          << "the " << nameOfTask(step) << (hole ? " writes others here" : " writes it here");
  }
}
