//===- Recorded.cpp - What launches left on a GPU, compared ---------------===//

#include "tests/gpu/Recorded.h"

#include "runtime/error.h"
#include "tests/gpu/RealModel.h"
#include "tools/check/Comparison.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

#include <chrono>
#include <thread>

using namespace megalith::check;

namespace megalith::test {

std::string valuesFile(const std::string &out, const runtime::Plan &plan, int64_t context) {
  return llvm::formatv("{0}/{1}-rows{2}-context{3}.values", out, plan.model, plan.rows, context);
}

llvm::Error compareRecorded(const std::string &folder, const std::string &out,
                            const std::vector<int64_t> &contexts,
                            const std::vector<int64_t> &launches) {
  auto artifact = Artifact::load(folder);
  if (!artifact)
    return artifact.takeError();
  const runtime::Plan plan = runtime::planOfAll((*artifact)->plan);
  auto comparison =
      Comparison::create(*(*artifact)->graph, plan,
                         {.threads = std::max(1u, std::thread::hardware_concurrency()),
                          .mirrored = plan.tp > 1,
                          .open = launches.empty(),
                          .launchesOnly = !launches.empty()});
  if (!comparison)
    return comparison.takeError();
  std::string failures;
  for (int64_t context : contexts) {
    const auto from = std::chrono::steady_clock::now();
    const auto seconds = [&] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
    };
    const Workload workload = steadyWorkload(plan.rows, context);
    auto values = readValues(valuesFile(out, plan, context));
    if (!values)
      return values.takeError();
    const std::vector<runtime::LaunchGroup> groups = plan.groups();
    if (values->size() != groups.size())
      return runtime::problem("{0}: values of {1} groups of launches, the plan has {2}",
                              valuesFile(out, plan, context), values->size(), groups.size());
    (*comparison)->begin(workload);
    if (auto error = (*comparison)->beginStep(sequencesOf(workload, 0, plan.vocab)))
      return error;
    Report report;
    for (int64_t launch : launches)
      if (launch < 0 || launch >= int64_t(values->size()))
        return runtime::problem("launch {0}: expected one of 0 to {1}", launch, values->size() - 1);
    for (size_t launch = 0; launch < values->size(); ++launch) {
      if (!launches.empty() && !llvm::is_contained(launches, int64_t(launch))) {
        (*comparison)->skip((*values)[launch]);
        continue;
      }
      auto compared = (*comparison)->compare(groups[launch], (*values)[launch]);
      if (!compared)
        return compared.takeError();
      report.launches.push_back(std::move(*compared));
      llvm::errs() << "\rcontext " << context << ": launch " << launch << ", "
                   << llvm::formatv("{0:F0} s ", seconds());
    }
    llvm::errs() << "\n";
    llvm::outs() << llvm::formatv("{0}, rows {1}, context {2}, {3:F0} s: {4}\n{5}", plan.model,
                                  plan.rows, context, seconds(), report.passes() ? "ok" : "FAILED",
                                  report.table());
    llvm::outs().flush();
    if (!report.passes())
      failures += llvm::formatv(" context {0}", context);
  }
  return failures.empty() ? llvm::Error::success()
                          : runtime::problem("not within tolerance:{0}", failures);
}

} // namespace megalith::test
