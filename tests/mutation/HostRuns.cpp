#include "tests/mutation/HostRuns.h"

#include "codegen/Compile.h"
#include "codegen/headers.h"
#include "runtime/host_backend.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"

#include <chrono>
#include <cstdio>
#include <cstring>
#include <sys/wait.h>
#include <unistd.h>

using namespace megalith;
using namespace megalith::mutation;

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// As many sequences as there are rows, one fewer from four on: of one row each, with old
/// positions in whole units, in part of one, in none. Two steps: every set and slot is used again.
check::Workload workloadFor(int64_t rows) {
  check::Workload workload{.seed = 3, .steps = 2};
  const int64_t starts[] = {130, 17, 0, 63, 40, 16, 95};
  for (int64_t row = 0; row < (rows >= 4 ? rows - 1 : rows); ++row)
    workload.sequences.push_back({.start = starts[row % std::size(starts)], .content = row});
  return workload;
}

} // namespace

llvm::Expected<std::unique_ptr<HostRuns>> HostRuns::create(const SubjectSpec &spec,
                                                           const Loaded &loaded) {
  auto runs = std::unique_ptr<HostRuns>(new HostRuns);
  runs->graph = *loaded.graph;
  runs->facts = collectFacts(*loaded.graph, spec.file);
  runs->workload = workloadFor(spec.rows);
  llvm::SmallString<128> temporary;
  if (auto code = llvm::sys::fs::createUniqueDirectory("megalith-mutants", temporary))
    return llvm::errorCodeToError(code);
  runs->folder = temporary.str().str();
  runs->headers = runs->folder + "/headers";
  if (llvm::Error error = writeDeviceHeaders(runs->headers))
    return error;
  auto outcome = runs->runOnce(*loaded.plan, /*seeds=*/1, nullptr);
  if (!outcome)
    return outcome.takeError();
  runs->outcome = std::move(*outcome);
  return runs;
}

HostRuns::~HostRuns() {
  llvm::sys::fs::remove_directories(folder);
}

llvm::Expected<check::Outcome> HostRuns::runOnce(mlir::ModuleOp plan, int seeds,
                                                 const check::Outcome *expected) {
  const double begin = now();
  CompileOptions compile;
  compile.outDir = folder + "/artifact";
  compile.cubins = false;
  compile.emit.digests = false; // kernels that are the same are compiled once
  auto artifact = compileKernels(plan, facts, compile);
  if (!artifact)
    return artifact.takeError();
  runtime::HostBackend backend(
      {.compile = {.includeFolder = headers, .cacheFolder = folder + "/cache", .optimize = 0}});
  auto session =
      check::Session::create(graph, artifact->plan, artifact->folder, backend,
                             {.maxPages = workload.maxPages(), .poolPages = workload.totalPages()});
  if (!session)
    return session.takeError();
  const double ready = now();
  compileSeconds += ready - begin;
  check::Outcome first;
  for (int seed = 1; seed <= seeds; ++seed) {
    backend.reseed(seed);
    // All sets of words, and epochs across the wrap of 32 bits.
    const uint64_t base = seed % 4 == 3 ? (uint64_t(1) << 32) - 3 : 5 * seed;
    auto outcome = (*session)->run(workload, base);
    if (!outcome)
      return outcome.takeError();
    if (expected && !(*outcome == *expected))
      return llvm::createStringError("other bits under seed " + std::to_string(seed));
    first = std::move(*outcome);
  }
  runSeconds += now() - ready;
  return first;
}

// In a process of its own: a mutant that was accepted wrongly may do anything.
std::string HostRuns::run(mlir::ModuleOp mutant, int seeds, bool hasSameArithmetic) {
  int ends[2];
  if (pipe(ends) != 0)
    return "no pipe to a process of its own";
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    compileSeconds = runSeconds = 0;
    auto result = runOnce(mutant, seeds, hasSameArithmetic ? &outcome : nullptr);
    const std::string said = llvm::formatv("{0} {1}\n", compileSeconds, runSeconds).str() +
                             (result ? "" : llvm::toString(result.takeError()));
    const bool isSaid = write(ends[1], said.data(), said.size()) == ssize_t(said.size());
    _exit(isSaid ? 0 : 1);
  }
  close(ends[1]);
  std::string said;
  char buffer[4096];
  for (ssize_t count; (count = read(ends[0], buffer, sizeof buffer)) > 0;)
    said.append(buffer, size_t(count));
  close(ends[0]);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child)
    return "no process of its own";
  if (WIFSIGNALED(status))
    return std::string("ends by ") + strsignal(WTERMSIG(status));
  if (WEXITSTATUS(status) != 0)
    return "its process ends without a word";
  auto [times, fault] = llvm::StringRef(said).split('\n');
  double compiled = 0, ran = 0;
  times.split(' ').first.getAsDouble(compiled);
  times.split(' ').second.getAsDouble(ran);
  compileSeconds += compiled;
  runSeconds += ran;
  return fault.str();
}
