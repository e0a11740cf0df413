// Every mutant is rejected, or equivalent for a reason that is checked.
#include "tests/mutation/Drawn.h"
#include "tests/mutation/Modes.h"
#include "tests/mutation/Workers.h"

#include "mlir/IR/Diagnostics.h"

#include <cstdio>
#include <map>

using namespace mlir;
using namespace megalith;
using namespace megalith::mutation;

namespace {

constexpr size_t kMutants = 2500, kSlice = 256;

/// What became of mutants.
enum End { Killed, Implied, Unneeded, Footprint, Commutes, Unexplained, Total, Left, Ends };
using Tally = std::array<size_t, Ends>;

void print(const std::string &name, const Tally &tally) {
  std::printf("%-24s", name.c_str());
  for (size_t i = 0; i <= Total; ++i)
    std::printf(" %7zu", tally[i]);
  std::printf("\n");
}

/// Explains a mutant that was accepted, aloud if `isLoud` or nothing does.
End explain(Subject &subject, Mutant &mutant, const Mutation &mutation, bool isLoud) {
  Explanation why{Reason::None, "the launches of the step"};
  if (mutant.kernel)
    why = subject.explainerOf(subject.original(mutant.kernel)).explain(mutant.kernel, mutation);
  if (why.reason == Reason::None || isLoud)
    std::printf("%s: %s: %s\n    %s\n", why.reason == Reason::None ? "SURVIVOR" : "equivalent",
                mutation.name.c_str(), mutation.site.c_str(), why.text.c_str());
  switch (why.reason) {
  case Reason::Implied:
    return Implied;
  case Reason::Unneeded:
    return Unneeded;
  case Reason::Footprint:
    return Footprint;
  case Reason::Commutes:
    return Commutes;
  case Reason::None:
    break;
  }
  return Unexplained;
}

} // namespace

int mutation::runProof(llvm::StringRef only, llvm::StringRef operators) {
  const Deadline deadline;
  const bool areChosen = !only.empty() || !operators.empty();
  std::vector<Subject> subjects =
      drawSubjects(only, /*areConfigs=*/false, isFull() || areChosen ? SIZE_MAX : kMutants,
                   /*seed=*/1);
  llvm::SmallVector<llvm::StringRef> words;
  operators.split(words, ',', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  if (!words.empty())
    for (Subject &subject : subjects)
      llvm::erase_if(subject.drawn, [&](size_t index) {
        return llvm::none_of(words, [&](llvm::StringRef word) {
          return llvm::StringRef(subject.mutations[index].name).contains(word);
        });
      });
  const std::vector<Slice> slices = slicesOf(subjects, kSlice);
  auto work = [&](size_t job) {
    const Slice &slice = slices[job];
    Subject &subject = subjects[slice.subject];
    const double begin = now();
    std::map<std::string, Tally> byOperator;
    ScopedDiagnosticHandler silence(subject.context.get(), [](Diagnostic &) { return success(); });
    size_t done = 0;
    for (size_t i = slice.begin; i < slice.end; ++i) {
      const Mutation &mutation = subject.mutations[subject.drawn[i]];
      Tally &tally = byOperator[mutation.name];
      if (deadline.isOver()) {
        ++tally[Left];
        continue;
      }
      Mutant mutant = mutate(*subject.loaded.plan, mutation);
      ++done, ++tally[Total];
      ++tally[isRejected(mutant) ? Killed : explain(subject, mutant, mutation, areChosen)];
    }
    std::fprintf(stderr, "%5.1f min  %s, slice %zu of %zu: %zu of %zu mutants, %.0f s\n",
                 deadline.minutes(), subject.spec.name().c_str(), slice.number, slice.of, done,
                 subject.mutations.size(), now() - begin);
    std::string lines;
    for (const auto &[name, tally] : byOperator)
      lines += name + "\t" + lineOf(tally) + "\n";
    return lines;
  };
  std::map<std::string, Tally> byOperator;
  Tally all{};
  const bool isWhole = dealOut(slices.size(), workers(), work, [&](llvm::StringRef line) {
    auto [name, numbers] = line.split('\t');
    addLine(byOperator[name.str()], numbers);
    addLine(all, numbers);
  });
  size_t kernels = 0;
  for (Subject &subject : subjects)
    kernels += llvm::range_size(subject.loaded.plan->getOps<task::KernelOp>());
  std::printf("%-24s %7s %7s %7s %7s %7s %7s %7s\n", "operator", "killed", "implied", "unneed.",
              "footpr.", "commute", "SURVIV.", "total");
  for (const auto &[name, tally] : byOperator)
    print(name, tally);
  print("all", all);
  std::printf("%zu kernels: %zu killed, %zu equivalent, %zu unexplained, %zu mutants\n", kernels,
              all[Killed], all[Implied] + all[Unneeded] + all[Footprint] + all[Commutes],
              all[Unexplained], all[Total]);
  if (all[Left])
    std::printf("%zu mutants were not begun in %g minutes\n", all[Left], *deadline.limit);
  if (!isWhole)
    std::printf("a process ended before its work did\n");
  return !isWhole || all[Unexplained] || all[Total] == 0;
}
