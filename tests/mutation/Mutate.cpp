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

#include "passes/verify/Verify.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"
#include "llvm/ADT/StringMap.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>

using namespace mlir;
using namespace megalith;
using namespace megalith::mutation;

namespace {

constexpr size_t kProofMutants = 2500, kHostMutants = 300;
constexpr int kHostSeeds = 5;

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

/// Whether verifiers or proof reject the mutant. Its own kernel first: most die there.
bool isRejected(const Mutant &mutant) {
  task::KernelOp kernel = mutant.kernel;
  if (kernel && (failed(mlir::verify(kernel)) || failed(verify::verifyKernel(kernel))))
    return true;
  return failed(mlir::verify(*mutant.plan)) || failed(verify::verifyPlan(*mutant.plan));
}

struct Tally {
  size_t killed = 0, implied = 0, unneeded = 0, footprint = 0, commutes = 0, unexplained = 0,
         total = 0;
  void operator+=(const Tally &o) {
    killed += o.killed, implied += o.implied, unneeded += o.unneeded, footprint += o.footprint;
    commutes += o.commutes, unexplained += o.unexplained, total += o.total;
  }
  void print(const std::string &name) const {
    std::printf("%-24s %7zu %7zu %7zu %7zu %7zu %7zu %7zu\n", name.c_str(), killed, implied,
                unneeded, footprint, commutes, unexplained, total);
  }
};

int proof(llvm::StringRef only) {
  std::vector<Subject> subjects = loadSubjects(only, /*areConfigs=*/false);
  draw(subjects, isFull() || !only.empty() ? SIZE_MAX : kProofMutants, /*seed=*/1);
  std::map<std::string, Tally> byOperator;
  Tally all;
  size_t kernels = 0;
  for (Subject &subject : subjects) {
    Tally here;
    kernels += llvm::range_size(subject.loaded.plan->getOps<task::KernelOp>());
    ScopedDiagnosticHandler silence(subject.context.get(), [](Diagnostic &) { return success(); });
    for (size_t index : subject.drawn) {
      const Mutation &mutation = subject.mutations[index];
      Mutant mutant = mutate(*subject.loaded.plan, mutation);
      Tally one{.total = 1};
      if (isRejected(mutant)) {
        one.killed = 1;
      } else {
        Explanation why{Reason::None, "the launches of the step"};
        if (mutant.kernel)
          why = subject
                    .explainerOf(subject.loaded.plan->lookupSymbol<task::KernelOp>(
                        mutant.kernel.getSymName()))
                    .explain(mutant.kernel, mutation);
        size_t &count = [&]() -> size_t & {
          switch (why.reason) {
          case Reason::Implied:
            return one.implied;
          case Reason::Unneeded:
            return one.unneeded;
          case Reason::Footprint:
            return one.footprint;
          case Reason::Commutes:
            return one.commutes;
          case Reason::None:
            break;
          }
          return one.unexplained;
        }();
        count = 1;
        if (why.reason == Reason::None || !only.empty())
          std::printf("%s: %s: %s\n    %s\n",
                      why.reason == Reason::None ? "SURVIVOR" : "equivalent", mutation.name.c_str(),
                      mutation.site.c_str(), why.text.c_str());
      }
      byOperator[mutation.name] += one;
      here += one;
    }
    std::fprintf(stderr, "%s: %zu of %zu mutants\n", subject.spec.name().c_str(), here.total,
                 subject.mutations.size());
    all += here;
  }
  std::printf("%-24s %7s %7s %7s %7s %7s %7s %7s\n", "operator", "killed", "implied", "unneed.",
              "footpr.", "commute", "SURVIV.", "total");
  for (const auto &[name, tally] : byOperator)
    tally.print(name);
  all.print("all");
  std::printf("%zu kernels: %zu killed, %zu equivalent, %zu unexplained, %zu mutants\n", kernels,
              all.killed, all.implied + all.unneeded + all.footprint + all.commutes,
              all.unexplained, all.total);
  return all.unexplained || all.total == 0;
}

int host(llvm::StringRef only) {
  std::vector<Subject> subjects = loadSubjects(only, /*areConfigs=*/true);
  draw(subjects, isFull() || !only.empty() ? SIZE_MAX : kHostMutants, /*seed=*/2);
  size_t rejected = 0, sameCode = 0, again = 0, ran = 0, sameBits = 0, failures = 0, total = 0;
  double compileSeconds = 0, runSeconds = 0;
  for (Subject &subject : subjects) {
    ScopedDiagnosticHandler silence(subject.context.get(), [](Diagnostic &) { return success(); });
    std::unique_ptr<HostRuns> runs;
    std::set<std::string> seen; // kernels that ran
    for (size_t index : subject.drawn) {
      const Mutation &mutation = subject.mutations[index];
      Mutant mutant = mutate(*subject.loaded.plan, mutation);
      ++total;
      if (isRejected(mutant)) {
        ++rejected;
        continue;
      }
      task::KernelOp kernel = mutant.kernel;
      auto original = kernel
                          ? subject.loaded.plan->lookupSymbol<task::KernelOp>(kernel.getSymName())
                          : task::KernelOp();
      const std::string source = kernel ? sourceOf(kernel) : "";
      if (kernel && source == subject.sourceOf(original)) {
        ++sameCode;
        continue;
      }
      if (kernel && !seen.insert(source).second) {
        ++again;
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
      ++ran;
      sameBits += isSame;
      if (fault.empty())
        continue;
      ++failures;
      std::printf("ACCEPTED BUT FAILS: %s: %s\n    %s\n", mutation.name.c_str(),
                  mutation.site.c_str(), fault.c_str());
    }
    if (runs) {
      compileSeconds += runs->compileSeconds;
      runSeconds += runs->runSeconds;
    }
    std::fprintf(stderr, "%s: %zu mutants, %zu ran so far, %.0f s compiling, %.0f s running\n",
                 subject.spec.name().c_str(), subject.drawn.size(), ran, compileSeconds,
                 runSeconds);
  }
  std::printf("%zu mutants: %zu rejected; %zu accepted with the plan's own code, %zu with another "
              "mutant's; %zu ran under %d seeds each, %zu of them held to the plan's bits; %zu "
              "failed\n%.1f s compiling, %.1f s running\n",
              total, rejected, sameCode, again, ran, kHostSeeds, sameBits, failures, compileSeconds,
              runSeconds);
  return failures || total == 0;
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
