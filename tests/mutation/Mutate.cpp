// Mutants of plans against the proof.
//
//   mutate proof    each mutant is rejected, or equivalent for a reason that is checked
//   mutate host     300 mutants: those that are accepted run clean under 5 scheduler seeds
//
// Mutants are drawn by a fixed seed; with $MEGALITH_FULL all are taken. `mutate proof <text>` takes
// all of the subjects whose names contain the text, and lists what is equivalent.
#include "tests/mutation/HostRuns.h"
#include "tests/mutation/Reasons.h"
#include "tests/mutation/Subjects.h"
#include "tests/mutation/Workers.h"

#include "passes/verify/Verify.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"
#include "llvm/ADT/StringMap.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <thread>

using namespace mlir;
using namespace megalith;
using namespace megalith::mutation;

namespace {

constexpr size_t kProofMutants = 2500, kHostMutants = 300;
constexpr int kHostSeeds = 5;
/// Mutants that a process takes at a time; on the host platform each slice runs the plan itself.
constexpr size_t kProofSlice = 256, kHostSlice = 1000;

bool isFull() {
  return std::getenv("MEGALITH_FULL") != nullptr;
}

/// splitmix64: the same draw on every machine.
uint64_t scramble(uint64_t value) {
  value += 0x9e3779b97f4a7c15ull;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
  return value ^ (value >> 31);
}

/// A plan, its mutants and who explains them.
struct Subject {
  SubjectSpec spec;
  std::unique_ptr<MLIRContext> context;
  Loaded loaded;
  std::vector<Mutation> mutations;
  std::vector<size_t> drawn; ///< of them
  llvm::StringMap<std::unique_ptr<Explainer>> explainers;

  Explainer &explainerOf(task::KernelOp kernel) {
    auto &explainer = explainers[kernel.getSymName()];
    if (!explainer)
      explainer = std::make_unique<Explainer>(kernel);
    return *explainer;
  }
  /// Emitted, of a kernel of the plan.
  const std::string &sourceOf(task::KernelOp kernel) {
    auto [it, isNew] = sources.try_emplace(kernel.getSymName());
    if (isNew)
      it->second = mutation::sourceOf(kernel);
    return it->second;
  }
  llvm::StringMap<std::string> sources;
};

std::vector<Subject> loadSubjects(llvm::StringRef only, bool areConfigs) {
  std::vector<Subject> subjects;
  for (const SubjectSpec &spec : mutation::subjects()) {
    if ((areConfigs && !spec.isConfig()) || !llvm::StringRef(spec.name()).contains(only))
      continue;
    Subject subject{
        spec, std::make_unique<MLIRContext>(MLIRContext::Threading::DISABLED), {}, {}, {}, {}, {}};
    auto loaded = load(*subject.context, spec);
    if (!loaded)
      llvm::report_fatal_error(loaded.takeError());
    subject.loaded = std::move(*loaded);
    // Else every mutant would be rejected, and for nothing.
    if (failed(verify::verifyPlan(*subject.loaded.plan)))
      llvm::report_fatal_error(("the plan itself is rejected: " + spec.name()).c_str());
    locateSteps(*subject.loaded.plan);
    subject.mutations = mutationsOf(*subject.loaded.plan);
    subjects.push_back(std::move(subject));
  }
  return subjects;
}

/// Draws `count` of all mutants, or all.
void draw(std::vector<Subject> &subjects, size_t count, uint64_t seed) {
  std::vector<std::pair<uint64_t, std::pair<size_t, size_t>>> all;
  for (size_t s = 0; s < subjects.size(); ++s)
    for (size_t m = 0; m < subjects[s].mutations.size(); ++m)
      all.push_back({scramble(scramble(seed + s) + m), {s, m}});
  std::sort(all.begin(), all.end());
  all.resize(std::min(all.size(), count));
  for (const auto &[key, place] : all)
    subjects[place.first].drawn.push_back(place.second);
  for (Subject &subject : subjects)
    std::sort(subject.drawn.begin(), subject.drawn.end());
}

/// Whether verifiers or proof reject the mutant. Kernels that it left as they were are proved; the
/// plan it comes from is.
bool isRejected(const Mutant &mutant) {
  task::KernelOp kernel = mutant.kernel;
  return (kernel && (failed(mlir::verify(kernel)) || failed(verify::verifyKernel(kernel)))) ||
         failed(mlir::verify(*mutant.plan)) || failed(verify::verifyTogether(*mutant.plan));
}

/// Some of a subject's drawn mutants: [begin, end) of them.
struct Slice {
  size_t subject, begin, end;
};

/// All drawn mutants in slices, so that processes end at about the same time.
std::vector<Slice> slicesOf(const std::vector<Subject> &subjects, size_t most) {
  std::vector<Slice> slices;
  for (size_t s = subjects.size(); s-- > 0;) // the widest plans stand last and cost most
    for (size_t begin = 0; begin < subjects[s].drawn.size(); begin += most)
      slices.push_back({s, begin, std::min(subjects[s].drawn.size(), begin + most)});
  return slices;
}

/// All mutants are worth all cores; a few must leave them to other tests.
unsigned workers() {
  return isFull() ? std::max(1u, std::thread::hardware_concurrency()) : 1;
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Numbers in a line, of a job's process or for people.
template <size_t N> std::string lineOf(const std::array<size_t, N> &numbers) {
  std::string line;
  for (size_t number : numbers)
    line += (line.empty() ? "" : " ") + std::to_string(number);
  return line;
}
template <size_t N> void addLine(std::array<size_t, N> &numbers, llvm::StringRef line) {
  for (size_t &number : numbers) {
    size_t more = 0;
    line.consumeInteger(10, more);
    line = line.ltrim();
    number += more;
  }
}

/// What became of mutants.
enum End { Killed, Implied, Unneeded, Footprint, Commutes, Unexplained, Total, Ends };
using Tally = std::array<size_t, Ends>;

void print(const std::string &name, const Tally &tally) {
  std::printf("%-24s", name.c_str());
  for (size_t number : tally)
    std::printf(" %7zu", number);
  std::printf("\n");
}

/// Explains a mutant that was accepted, aloud if `isLoud` or nothing does.
End explain(Subject &subject, Mutant &mutant, const Mutation &mutation, bool isLoud) {
  Explanation why{Reason::None, "the launches of the step"};
  if (mutant.kernel)
    why = subject
              .explainerOf(
                  subject.loaded.plan->lookupSymbol<task::KernelOp>(mutant.kernel.getSymName()))
              .explain(mutant.kernel, mutation);
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

int proof(llvm::StringRef only) {
  std::vector<Subject> subjects = loadSubjects(only, /*areConfigs=*/false);
  draw(subjects, isFull() || !only.empty() ? SIZE_MAX : kProofMutants, /*seed=*/1);
  const std::vector<Slice> slices = slicesOf(subjects, kProofSlice);
  auto work = [&](size_t job) {
    const Slice &slice = slices[job];
    Subject &subject = subjects[slice.subject];
    const double begin = now();
    std::map<std::string, Tally> byOperator;
    ScopedDiagnosticHandler silence(subject.context.get(), [](Diagnostic &) { return success(); });
    for (size_t i = slice.begin; i < slice.end; ++i) {
      const size_t index = subject.drawn[i];
      const Mutation &mutation = subject.mutations[index];
      Mutant mutant = mutate(*subject.loaded.plan, mutation);
      Tally &tally = byOperator[mutation.name];
      ++tally[Total];
      ++tally[isRejected(mutant) ? Killed : explain(subject, mutant, mutation, !only.empty())];
    }
    std::fprintf(stderr, "%s: %zu of %zu mutants, %.0f s\n", subject.spec.name().c_str(),
                 slice.end - slice.begin, subject.mutations.size(), now() - begin);
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
  if (!isWhole)
    std::printf("a process ended before its work did\n");
  return !isWhole || all[Unexplained] || all[Total] == 0;
}

/// What became of mutants on the host platform, and milliseconds.
enum HostEnd {
  Rejected,
  SameCode,
  Again,
  Ran,
  SameBits,
  Failed,
  AllHost,
  Compiling,
  Running,
  HostEnds
};
using HostTally = std::array<size_t, HostEnds>;

int host(llvm::StringRef only) {
  std::vector<Subject> subjects = loadSubjects(only, /*areConfigs=*/true);
  draw(subjects, isFull() || !only.empty() ? SIZE_MAX : kHostMutants, /*seed=*/2);
  const std::vector<Slice> slices = slicesOf(subjects, kHostSlice);
  auto work = [&](size_t job) {
    const Slice &slice = slices[job];
    Subject &subject = subjects[slice.subject];
    const double begin = now();
    HostTally tally{};
    ScopedDiagnosticHandler silence(subject.context.get(), [](Diagnostic &) { return success(); });
    std::unique_ptr<HostRuns> runs;
    std::set<std::string> seen; // kernels that ran
    for (size_t i = slice.begin; i < slice.end; ++i) {
      const size_t index = subject.drawn[i];
      const Mutation &mutation = subject.mutations[index];
      Mutant mutant = mutate(*subject.loaded.plan, mutation);
      ++tally[AllHost];
      if (isRejected(mutant)) {
        ++tally[Rejected];
        continue;
      }
      task::KernelOp kernel = mutant.kernel;
      auto original = kernel
                          ? subject.loaded.plan->lookupSymbol<task::KernelOp>(kernel.getSymName())
                          : task::KernelOp();
      const std::string source = kernel ? sourceOf(kernel) : "";
      if (kernel && source == subject.sourceOf(original)) {
        ++tally[SameCode];
        continue;
      }
      if (kernel && !seen.insert(source).second) {
        ++tally[Again];
        continue;
      }
      if (!runs) {
        auto created = HostRuns::create(subject.spec, subject.loaded);
        if (!created)
          llvm::report_fatal_error(created.takeError());
        runs = std::move(*created);
      }
      const bool isSame = kernel && arithmeticOf(kernel) == arithmeticOf(original);
      const std::string fault = runs->run(*mutant.plan, kHostSeeds, isSame);
      ++tally[Ran];
      tally[SameBits] += isSame;
      if (fault.empty())
        continue;
      ++tally[Failed];
      std::printf("ACCEPTED BUT FAILS: %s: %s\n    %s\n", mutation.name.c_str(),
                  mutation.site.c_str(), fault.c_str());
    }
    if (runs) {
      tally[Compiling] = size_t(1e3 * runs->compileSeconds);
      tally[Running] = size_t(1e3 * runs->runSeconds);
    }
    std::fprintf(stderr, "%s: %zu mutants, %zu ran, %.0f s: %.0f compiling, %.0f running\n",
                 subject.spec.name().c_str(), tally[AllHost], tally[Ran], now() - begin,
                 1e-3 * double(tally[Compiling]), 1e-3 * double(tally[Running]));
    return lineOf(tally) + "\n";
  };
  HostTally all{};
  const bool isWhole =
      dealOut(slices.size(), workers(), work, [&](llvm::StringRef line) { addLine(all, line); });
  std::printf("%zu mutants: %zu rejected; %zu accepted with the plan's own code, %zu with another "
              "mutant's; %zu ran under %d seeds each, %zu of them held to the plan's bits; %zu "
              "failed\n%.1f s compiling, %.1f s running\n",
              all[AllHost], all[Rejected], all[SameCode], all[Again], all[Ran], kHostSeeds,
              all[SameBits], all[Failed], 1e-3 * double(all[Compiling]),
              1e-3 * double(all[Running]));
  if (!isWhole)
    std::printf("a process ended before its work did\n");
  return !isWhole || all[Failed] || all[AllHost] == 0;
}

} // namespace

int main(int argc, char **argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0); // what is found is said at once
  const llvm::StringRef mode = argc > 1 ? argv[1] : "", only = argc > 2 ? argv[2] : "";
  if (mode == "proof")
    return proof(only);
  if (mode == "host")
    return host(only);
  std::fprintf(stderr, "usage: mutate proof|host [part of a subject's name]\n");
  return 2;
}
