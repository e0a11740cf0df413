// Mutants that are accepted run clean on the host platform.
//
// A run is of a plan, and a mutant changes one of its kernels: mutants of different kernels run
// together, and where all are taken several of each, if the proof accepts them together. Where a
// run fails its mutants run again by halves.
#include "tests/mutation/Drawn.h"
#include "tests/mutation/HostRuns.h"
#include "tests/mutation/Modes.h"
#include "tests/mutation/Workers.h"

#include "passes/verify/Verify.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"

#include <cstdio>
#include <map>
#include <set>

using namespace mlir;
using namespace megalith;
using namespace megalith::mutation;

namespace {

constexpr size_t kMutants = 300;
constexpr int kSeeds = 5;
/// Mutants of a kernel that run at once where all are taken, and packs that one is tried in.
constexpr size_t kPack = 16, kTries = 6;
/// Of mutants that ran with others of their kernel one in so many runs alone too: in company one
/// may hide what another does wrong.
constexpr size_t kAlone = 20;
/// Mutants that a process takes at a time; each slice runs the plan itself.
constexpr size_t kSlice = 3000;

/// What became of mutants, runs, and milliseconds.
enum End {
  Rejected,
  SameCode,
  Again,
  Ran,
  SameBits,
  Alone,
  Failed,
  Left,
  All,
  Runs,
  Compiling,
  Running,
  Ends
};
using Tally = std::array<size_t, Ends>;

/// A mutant that is to run.
struct Waiting {
  size_t index;       ///< of the subject's mutations
  std::string kernel; ///< "" if it changes the order of launches
  Operation *place;   ///< of the plan: the role whose steps it changes, or the declaration
  bool isSame;        ///< its arithmetic, so its bits must be the plan's
};
using Group = std::vector<Waiting>;

/// Mutants of one kernel in packs of `most`, each of other places than the rest of its pack, which
/// `areAccepted` together.
std::vector<Group> packsOf(const std::vector<Waiting> &mutants, size_t most,
                           llvm::function_ref<bool(const Group &)> areAccepted) {
  std::vector<Group> packs;
  for (const Waiting &mutant : mutants) {
    size_t tries = 0;
    auto takes = [&](Group &pack) {
      if (pack.size() >= most || tries == kTries ||
          llvm::any_of(pack, [&](const Waiting &other) { return other.place == mutant.place; }))
        return false;
      ++tries;
      pack.push_back(mutant);
      if (areAccepted(pack))
        return true;
      pack.pop_back();
      return false;
    };
    if (llvm::none_of(packs, takes))
      packs.push_back({mutant});
  }
  // The fullest of each kernel run together.
  llvm::stable_sort(packs, [](const Group &a, const Group &b) { return a.size() > b.size(); });
  return packs;
}

/// What runs together: a pack of each kernel, held to the same.
std::vector<Group> groupsOf(const std::vector<Waiting> &waiting, size_t most,
                            llvm::function_ref<bool(const Group &)> areAccepted) {
  std::vector<Group> groups;
  for (bool isSame : {true, false}) {
    std::map<std::string, std::vector<Waiting>> kernels;
    for (const Waiting &mutant : waiting)
      if (mutant.isSame == isSame && mutant.kernel.empty())
        groups.push_back({mutant});
      else if (mutant.isSame == isSame)
        kernels[mutant.kernel].push_back(mutant);
    const size_t first = groups.size();
    for (const auto &[kernel, mutants] : kernels)
      for (auto [i, pack] : llvm::enumerate(packsOf(mutants, most, areAccepted))) {
        groups.resize(std::max(groups.size(), first + i + 1));
        llvm::append_range(groups[first + i], pack);
      }
  }
  return groups;
}

/// A slice's mutants: which are accepted, and what they do on the host platform.
class SliceOfHost {
public:
  SliceOfHost(Subject &subject, const Slice &slice, size_t most, const Deadline &deadline)
      : subject(subject), slice(slice), most(most), deadline(deadline) {}

  Tally run() {
    ScopedDiagnosticHandler silence(subject.context.get(), [](Diagnostic &) { return success(); });
    const std::vector<Group> groups = groupsOf(
        accepted(), most, [&](const Group &pack) { return isAccepted(*planOf(pack), pack); });
    for (const Group &group : groups) {
      if (deadline.isOver()) {
        tally[Left] += group.size();
        continue;
      }
      tally[Ran] += group.size();
      tally[SameBits] += group.front().isSame ? group.size() : 0;
      const size_t failed = tally[Failed];
      check(group);
      if (tally[Failed] == failed)
        checkAlone(group);
    }
    if (runs) {
      tally[Compiling] = size_t(1e3 * runs->compileSeconds);
      tally[Running] = size_t(1e3 * runs->runSeconds);
    }
    return tally;
  }

private:
  std::vector<Waiting> accepted() {
    std::vector<Waiting> waiting;
    std::set<std::string> seen;
    for (size_t i = slice.begin; i < slice.end; ++i) {
      const size_t index = subject.drawn[i];
      if (deadline.isOver()) {
        ++tally[Left];
        continue;
      }
      Mutant mutant = mutate(*subject.loaded.plan, subject.mutations[index]);
      task::KernelOp kernel = mutant.kernel;
      if (isRejected(mutant)) {
        ++tally[Rejected];
      } else if (!kernel) {
        waiting.push_back({index, "", nullptr, false});
      } else {
        task::KernelOp original = subject.original(kernel);
        std::string code = withoutComments(sourceOf(kernel));
        if (code == subject.codeOf(original))
          ++tally[SameCode];
        else if (!seen.insert(std::move(code)).second)
          ++tally[Again];
        else
          waiting.push_back({index, kernel.getSymName().str(), placeOf(index),
                             arithmeticOf(kernel) == arithmeticOf(original)});
      }
    }
    return waiting;
  }

  Operation *placeOf(size_t index) {
    if (ops.empty())
      subject.loaded.plan->walk<WalkOrder::PreOrder>([&](Operation *op) { ops.push_back(op); });
    Operation *op = ops[subject.mutations[index].op];
    auto role = op->getParentOfType<task::RoleOp>();
    return role ? role : op;
  }

  /// What is wrong with a group's plan under some seed, or "".
  std::string faultOf(ModuleOp plan, const Group &group) {
    if (!runs) {
      auto created = HostRuns::create(subject.spec, subject.loaded);
      if (!created)
        llvm::report_fatal_error(created.takeError());
      runs = std::move(*created);
    }
    ++tally[Runs];
    return runs->run(plan, kSeeds, group.front().isSame);
  }

  OwningOpRef<ModuleOp> planOf(const Group &group) {
    std::vector<const Mutation *> mutations;
    for (const Waiting &mutant : group)
      mutations.push_back(&subject.mutations[mutant.index]);
    return mutateAll(*subject.loaded.plan, mutations);
  }

  /// Whether the proof accepts all of a group together, which is another plan.
  bool isAccepted(ModuleOp plan, const Group &group) {
    std::set<std::string> kernels;
    for (const Waiting &mutant : group)
      kernels.insert(mutant.kernel);
    kernels.erase("");
    return succeeded(mlir::verify(plan)) && succeeded(verify::verifyTogether(plan)) &&
           llvm::all_of(kernels, [&](const std::string &name) {
             return succeeded(verify::verifyKernel(plan.lookupSymbol<task::KernelOp>(name)));
           });
  }

  // All at once; by halves what is not accepted together, and what fails, down to the one that
  // does.
  void check(const Group &group) {
    OwningOpRef<ModuleOp> plan = planOf(group);
    const bool isPlan = group.size() == 1 || isAccepted(*plan, group);
    const std::string fault = isPlan ? faultOf(*plan, group) : "";
    if (isPlan && fault.empty())
      return;
    if (group.size() == 1)
      return report(group, fault);
    const size_t before = tally[Failed];
    const auto middle = group.begin() + long(group.size() / 2);
    check(Group(group.begin(), middle));
    check(Group(middle, group.end()));
    if (isPlan && tally[Failed] == before)
      report(group, "only together: " + fault);
  }

  // Some of those whose kernel had others in it.
  void checkAlone(const Group &group) {
    for (const Waiting &mutant : group) {
      const bool isOnly = llvm::count_if(group, [&](const Waiting &other) {
                            return other.kernel == mutant.kernel;
                          }) == 1;
      if (isOnly || packed++ % kAlone != 0)
        continue;
      ++tally[Alone];
      if (const std::string fault = faultOf(*planOf({mutant}), {mutant}); !fault.empty())
        report({mutant}, "alone, though not in its pack: " + fault);
    }
  }

  void report(const Group &group, const std::string &fault) {
    ++tally[Failed];
    for (const Waiting &mutant : group)
      std::printf("ACCEPTED BUT FAILS: %s: %s\n", subject.mutations[mutant.index].name.c_str(),
                  subject.mutations[mutant.index].site.c_str());
    std::printf("    %s\n", fault.c_str());
  }

  Subject &subject;
  const Slice &slice;
  const size_t most; ///< mutants of a kernel that run together
  const Deadline &deadline;
  std::vector<Operation *> ops; ///< of the plan, in the order of its mutations' sites
  std::unique_ptr<HostRuns> runs;
  Tally tally{};
  size_t packed = 0; ///< mutants so far whose kernel had others in it
};

void print(const std::string &name, const Tally &tally) {
  std::printf("%-48s", name.c_str());
  for (End end : {All, Rejected, SameCode, Again, Ran, SameBits, Alone, Runs, Failed, Left})
    std::printf(" %8zu", tally[end]);
  std::printf(" %8.0f\n", 1e-3 * double(tally[Compiling] + tally[Running]));
}

} // namespace

int mutation::runHost(llvm::StringRef only) {
  const Deadline deadline;
  std::vector<Subject> subjects =
      drawSubjects(only, /*areConfigs=*/true, isFull() || !only.empty() ? SIZE_MAX : kMutants,
                   /*seed=*/2);
  const std::vector<Slice> slices = slicesOf(subjects, kSlice);
  const size_t most = isFull() && only.empty() ? kPack : 1;
  auto work = [&](size_t job) {
    const Slice &slice = slices[job];
    Subject &subject = subjects[slice.subject];
    const double begin = now();
    Tally tally = SliceOfHost(subject, slice, most, deadline).run();
    tally[All] = slice.end - slice.begin;
    std::fprintf(stderr,
                 "%5.1f min  %s, slice %zu of %zu: %zu mutants, %zu ran in %zu runs, %zu failed, "
                 "%zu left, %.0f s: %.0f compiling, %.0f running\n",
                 deadline.minutes(), subject.spec.name().c_str(), slice.number, slice.of,
                 tally[All], tally[Ran], tally[Runs], tally[Failed], tally[Left], now() - begin,
                 1e-3 * double(tally[Compiling]), 1e-3 * double(tally[Running]));
    return std::to_string(slice.subject) + "\t" + lineOf(tally) + "\n";
  };
  std::vector<Tally> bySubject(subjects.size());
  Tally all{};
  const bool isWhole = dealOut(slices.size(), workers(), work, [&](llvm::StringRef line) {
    auto [number, numbers] = line.split('\t');
    size_t subject = 0;
    if (number.getAsInteger(10, subject) || subject >= subjects.size())
      return;
    addLine(bySubject[subject], numbers);
    addLine(all, numbers);
  });
  std::printf("%-48s %8s %8s %8s %8s %8s %8s %8s %8s %8s %8s %8s\n", "plan", "mutants", "rejected",
              "own code", "another", "ran", "to bits", "alone", "runs", "failed", "left",
              "seconds");
  for (size_t s = 0; s < subjects.size(); ++s)
    print(subjects[s].spec.name(), bySubject[s]);
  print("all", all);
  std::printf("%zu mutants: %zu rejected; %zu accepted with the plan's own code, %zu with another "
              "mutant's; %zu ran under %d seeds each, in %zu runs, %zu of them held to the plan's "
              "bits, %zu alone too; %zu failed\n%.1f s compiling, %.1f s running\n",
              all[All], all[Rejected], all[SameCode], all[Again], all[Ran], kSeeds, all[Runs],
              all[SameBits], all[Alone], all[Failed], 1e-3 * double(all[Compiling]),
              1e-3 * double(all[Running]));
  if (all[Left])
    std::printf("%zu mutants were not begun in %g minutes\n", all[Left], *deadline.limit);
  if (!isWhole)
    std::printf("a process ended before its work did\n");
  return !isWhole || all[Failed] || all[All] == all[Left];
}
