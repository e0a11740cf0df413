#include "tests/mutation/Drawn.h"

#include "passes/verify/Verify.h"

#include "mlir/IR/Verifier.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

using namespace mlir;
using namespace megalith;
using namespace megalith::mutation;

bool mutation::isFull() {
  return std::getenv("MEGALITH_FULL") != nullptr;
}

unsigned mutation::workers() {
  return isFull() ? std::max(1u, std::thread::hardware_concurrency()) : 1;
}

double mutation::now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Deadline::Deadline() : begin(now()) {
  double value = 0;
  const char *text = std::getenv("MEGALITH_MINUTES");
  if (text && !llvm::StringRef(text).getAsDouble(value))
    limit = value;
  else if (text)
    llvm::report_fatal_error("MEGALITH_MINUTES: expected a number of minutes");
}

double Deadline::minutes() const {
  return (now() - begin) / 60;
}

/// splitmix64: the same draw on every machine.
static uint64_t scramble(uint64_t value) {
  value += 0x9e3779b97f4a7c15ull;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
  return value ^ (value >> 31);
}

Explainer &Subject::explainerOf(task::KernelOp kernel) {
  auto &explainer = explainers[kernel.getSymName()];
  if (!explainer)
    explainer = std::make_unique<Explainer>(kernel);
  return *explainer;
}

const std::string &Subject::codeOf(task::KernelOp kernel) {
  auto [it, isNew] = codes.try_emplace(kernel.getSymName());
  if (isNew)
    it->second = withoutComments(sourceOf(kernel));
  return it->second;
}

static Subject load(const SubjectSpec &spec) {
  Subject subject;
  subject.spec = spec;
  subject.context = std::make_unique<MLIRContext>(MLIRContext::Threading::DISABLED);
  auto loaded = mutation::load(*subject.context, spec);
  if (!loaded)
    llvm::report_fatal_error(loaded.takeError());
  subject.loaded = std::move(*loaded);
  // Else every mutant would be rejected, and for nothing.
  if (failed(verify::verifyPlan(*subject.loaded.plan)))
    llvm::report_fatal_error(("the plan itself is rejected: " + spec.name()).c_str());
  locateSteps(*subject.loaded.plan);
  subject.mutations = mutationsOf(*subject.loaded.plan);
  return subject;
}

std::vector<Subject> mutation::drawSubjects(llvm::StringRef only, bool areConfigs, size_t count,
                                            uint64_t seed) {
  std::vector<Subject> subjects;
  for (const SubjectSpec &spec : mutation::subjects())
    if ((!areConfigs || spec.isConfig()) && llvm::StringRef(spec.name()).contains(only))
      subjects.push_back(::load(spec));
  std::vector<std::pair<uint64_t, std::pair<size_t, size_t>>> all;
  for (size_t s = 0; s < subjects.size(); ++s)
    // What is drawn of configs is compiled and run, which takes longest of the widest bucket: fewer
    // of its mutants are drawn.
    for (size_t m = 0; m < subjects[s].mutations.size();
         m += areConfigs && count < SIZE_MAX && subjects[s].spec.rows == 16 ? 16 : 1)
      all.push_back({scramble(scramble(seed + s) + m), {s, m}});
  std::sort(all.begin(), all.end());
  all.resize(std::min(all.size(), count));
  for (const auto &[key, place] : all)
    subjects[place.first].drawn.push_back(place.second);
  return subjects;
}

bool mutation::isRejected(const Mutant &mutant) {
  task::KernelOp kernel = mutant.kernel;
  return (kernel && (failed(mlir::verify(kernel)) || failed(verify::verifyKernel(kernel)))) ||
         failed(mlir::verify(*mutant.plan, /*verifyRecursively=*/!kernel)) ||
         failed(verify::verifyTogether(*mutant.plan));
}

std::vector<Slice> mutation::slicesOf(const std::vector<Subject> &subjects, size_t most) {
  std::vector<Slice> slices;
  size_t largest = 0;
  for (const Subject &subject : subjects)
    largest = std::max(largest, subject.drawn.size());
  for (size_t begin = 0; begin < largest; begin += most)
    for (size_t s = subjects.size(); s-- > 0;) // the widest plans stand last and cost most
      if (const size_t size = subjects[s].drawn.size(); begin < size)
        slices.push_back(
            {s, begin, std::min(size, begin + most), begin / most + 1, (size + most - 1) / most});
  return slices;
}
