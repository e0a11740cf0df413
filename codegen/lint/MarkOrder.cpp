//===- MarkOrder.cpp - The order of marks against role regions ------------===//

#include "codegen/lint/Linter.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <set>

using namespace mlir;
using namespace megalith::task;

namespace megalith::lint {

std::string Linter::markAt(int place) const {
  const Instruction &instruction = entry->code[place];
  if (instruction.kind == Instruction::Begin)
    return instruction.mark.text();
  if (states[place].open >= 0)
    return "";
  return instruction.opcode == "griddepcontrol.wait"                ? kLaunchWait.str()
         : instruction.opcode == "griddepcontrol.launch_dependents" ? kLaunchDependents.str()
                                                                    : "";
}

const Linter::Follow &Linter::followOf(int from) {
  auto [it, isNew] = follows.try_emplace(from);
  if (!isNew)
    return it->second;
  std::vector<bool> seen(entry->code.size());
  std::vector<int> work;
  auto reach = [&](int place) {
    if (place < int(entry->code.size()) && !seen[place]) {
      seen[place] = true;
      work.push_back(place);
    }
  };
  if (from < 0)
    reach(0);
  else
    llvm::for_each(entry->next(from), reach);
  while (!work.empty()) {
    const int place = work.back();
    work.pop_back();
    if (!markAt(place).empty()) {
      it->second.marks.push_back(place);
      continue;
    }
    if (entry->code[place].kind == Instruction::Return)
      it->second.end = place;
    llvm::for_each(entry->next(place), reach);
  }
  return it->second;
}

static std::string listed(ArrayRef<std::string> marks) {
  if (marks.empty())
    return "nothing more";
  std::string text;
  for (size_t i = 0; i < marks.size() && i < 4; ++i)
    text += (i == 0 ? "'" : " or '") + marks[i] + "'";
  return text + (marks.size() > 4 ? " or others" : "");
}

void Linter::checkOrder() {
  const size_t before = findings.size();
  std::vector<bool> taken(regions->steps().size());
  std::set<std::pair<int, Regions::States>> seen;
  std::vector<std::pair<int, Regions::States>> work = {{-1, regions->begin()}};
  while (!work.empty()) {
    auto [place, allowed] = std::move(work.back());
    work.pop_back();
    const Follow &follow = followOf(place);
    auto behind = [&] {
      return place < 0 ? std::string("the kernel's beginning")
                       : "'" + markAt(place) + "' (line " + std::to_string(lineAt(place)) + ")";
    };
    if (place >= 0 && follow.end >= 0 && !regions->mayEnd(allowed))
      note(lineAt(follow.end),
           llvm::formatv("a warp may end behind {0}, where the role regions go on with {1}; to "
                         "mend: emit the role regions' steps, each in its place",
                         behind(), listed(regions->expected(allowed))));
    for (int next : follow.marks) {
      Regions::States there = regions->after(allowed, markAt(next), &taken);
      if (there.empty())
        note(lineAt(next),
             llvm::formatv("{0}: comes behind {1}, where the role regions have {2}; to mend: "
                           "emit the role regions' steps, each in its place",
                           markAt(next), behind(), listed(regions->expected(allowed))));
      else if (seen.insert({next, there}).second)
        work.push_back({next, std::move(there)});
    }
  }
  if (findings.size() > before)
    return; // what comes behind was not walked
  for (auto [step, wasTaken] : llvm::zip_equal(regions->steps(), taken))
    // A pace with nothing to wait for, as the compiler sees, leaves nothing.
    if (!wasTaken && !step.isAgain && !isa<PaceOp>(step.op)) {
      auto stage = step.op->getParentOfType<StageOp>();
      note(0, llvm::formatv("{0}: the {1} of stage @{2} has a {3} that stands nowhere in the "
                            "PTX; to mend: emit it through a device function that marks its edge",
                            step.mark, stringifyRole(step.role), stage.getSymName(),
                            step.op->getName()));
    }
}

} // namespace megalith::lint
