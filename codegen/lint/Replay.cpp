//===- Replay.cpp - Walking role regions along a log ----------------------===//

#include "codegen/lint/Replay.h"

#include "codegen/lint/Bytes.h"
#include "codegen/lint/HostLog.h"
#include "codegen/lint/Ways.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <map>
#include <memory>
#include <set>

using namespace mlir;
using namespace megalith;
using namespace megalith::lint;
using namespace megalith::task;
using namespace megalith::verify;

namespace {

int roleOf(int warp) {
  return warp == 0 ? 0 : warp == 1 ? 1 : warp < 10 ? 2 : 3;
}

class Warp {
public:
  Warp(const Program &program, const LoggedLaunch &launch, int64_t rank, int64_t sm, int warp,
       Replayed &replayed)
      : ways(program, roleOf(warp), sm, launch.first, launch.end),
        bytes(program, launch, rank, replayed), replayed(replayed) {}

  /// The first thing that is wrong, with its line.
  std::optional<Finding> run(ArrayRef<LoggedStep> steps) {
    std::vector<Place> places;
    ways.expand(ways.begin(), places);
    const LoggedStep *between = nullptr;
    for (const LoggedStep &step : steps) {
      if (step.text == "between") {
        between = &step;
        continue;
      }
      ++replayed.steps;
      std::vector<Place> next;
      std::string wrong;
      std::set<std::string> expected;
      ways.moveOn();
      for (const Place &place : places) {
        if (ways.isAtEnd(place))
          continue;
        const ArrayRef<std::string> here = ways.marksAt(place);
        const auto mark = llvm::find(here, step.text);
        if (mark == here.end()) {
          for (const std::string &other : here)
            expected.insert("'" + other + "'");
          continue;
        }
        std::string why = between ? checkBetween(place, *between) : "";
        Place after = place;
        if (why.empty())
          why = take(after, step, size_t(mark - here.begin()));
        if (why.empty())
          ways.expand(std::move(after), next);
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
      if (!ways.isAtEnd(place))
        continue;
      const std::string why = between ? checkBetween(place, *between) : "";
      if (why.empty())
        return std::nullopt;
      wrong = why;
    }
    if (wrong.empty())
      wrong = "the warp ends where the role regions go on with '" +
              (places.empty() || ways.isAtEnd(places[0])
                   ? std::string("nothing")
                   : llvm::join(ways.marksAt(places[0]), "' or '")) +
              "'";
    return Finding{steps.empty() ? 0 : steps.back().number, wrong};
  }

private:
  std::string checkBetween(const Place &place, const LoggedStep &between) {
    Place whole = place;
    if (!ways.isAtEnd(place))
      ways.addTouched(ways.instrAt(place), whole); // what it does before its mark
    return bytes.checkBetween(whole, between);
  }

  /// Does the step that stands at `place` and shows its mark number `mark`; "" or what is wrong.
  std::string take(Place &place, const LoggedStep &step, size_t mark) {
    const Instr &instr = ways.instrAt(place);
    place.spans.clear();
    place.written.clear();
    ways.addTouched(instr, place); // of a poll or publication, which may go on
    std::string wrong = bytes.check(instr, place, step);
    if (wrong.empty())
      wrong = bytes.checkShared(place, step);
    switch (instr.kind) {
    case Instr::Wait:
    case Instr::Acquire:
    case Instr::Signal:
    case Instr::Release:
    case Instr::Copy:
      ++place.uses[instr.edge];
      break;
    default:
      break;
    }
    if (instr.kind == Instr::Poll || instr.kind == Instr::Compute)
      place.begun |= uint32_t(1) << mark; // and may go on
    else
      ++place.pc;
    return wrong;
  }

  Ways ways;
  Bytes bytes;
  Replayed &replayed;
};

} // namespace

Replayed lint::replay(ModuleOp module, StringRef log) {
  Replayed replayed;
  auto launches = readHostLog(log);
  if (!launches) {
    replayed.findings.push_back({0, llvm::toString(launches.takeError())});
    return replayed;
  }
  std::map<StringRef, std::unique_ptr<Program>> programs;
  for (const LoggedLaunch &launch : *launches) {
    auto kernel = module.lookupSymbol<KernelOp>(launch.kernel);
    if (!kernel)
      continue;
    std::unique_ptr<Program> &program = programs[launch.kernel];
    if (!program)
      program = std::make_unique<Program>(kernel);
    const int64_t launchesOfStep = kernel.getLaunches().value_or(1);
    if (launch.first < 0 || launch.first >= launch.end || launch.end > launchesOfStep) {
      replayed.findings.push_back(
          {launch.number, llvm::formatv("line {0}: launches {1} to {2} of a step of {3}",
                                        launch.number, launch.first, launch.end, launchesOfStep)});
      continue;
    }
    ++replayed.launches;
    // CTAs are dealt to ranks in turn (runtime/ranks.h).
    for (int64_t cta = 0; cta < program->ranks * program->sms; ++cta)
      for (int warp = 0; warp <= 10; ++warp) {
        static const std::vector<LoggedStep> kNothing;
        const int64_t rank = cta % program->ranks, sm = cta / program->ranks;
        auto found = launch.warps.find({int(cta), warp});
        auto wrong = Warp(*program, launch, rank, sm, warp, replayed)
                         .run(found == launch.warps.end() ? kNothing : found->second);
        if (wrong)
          replayed.findings.push_back(
              {wrong->line,
               llvm::formatv("line {0}: launch {1} ({2}), {3}SM {4}, warp {5}: {6}", wrong->line,
                             launch.n, launch.kernel,
                             program->ranks > 1 ? "rank " + std::to_string(rank) + ", " : "", sm,
                             warp, wrong->text)});
      }
  }
  return replayed;
}
