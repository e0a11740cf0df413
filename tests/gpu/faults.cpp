//===- faults.cpp - Kernels with faults planted, on a GPU -----------------===//
//
//   faults prepare FOLDER
// where NVRTC is: a plan a fault, its layer's kernel compiled with the fault;
//   faults list FOLDER
// their names;
//   faults run FOLDER NAME
// where a GPU is: runs a step of that plan; passes if it ends, soon after the deadline, in the
// message that names the edge whose signal is missing. "none" is the good plan, which must end
// well.
//
// A process a fault: the trap loses the GPU's context. tests/gpu/faults.sh runs them all.
//
//===----------------------------------------------------------------------===//

#include "tests/faults/Faults.h"
#include "codegen/headers.h"
#include "runtime/cuda_backend.h"
#include "runtime/error.h"
#include "runtime/kernel_cache.h"
#include "runtime/nvrtc.h"
#include "tests/gpu/RealModel.h"
#include "tools/check/Session.h"
#include "tools/check/Subject.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

#include <chrono>

using namespace megalith;
using namespace megalith::check;
using runtime::problem;

namespace {

constexpr const char *kConfig = "models/configs/qwen3-moe-small.test.json";
constexpr uint64_t kDeadlineNs = 100'000'000;
/// From the deadline on, the driver's own time included.
constexpr double kMostSeconds = 2;

llvm::Expected<std::string> readFile(const llvm::Twine &path) {
  auto file = llvm::MemoryBuffer::getFile(path);
  if (!file)
    return problem("{0}: {1}", path.str(), file.getError().message());
  return (*file)->getBuffer().str();
}

llvm::Error writeFile(const std::string &path, llvm::StringRef text) {
  return llvm::writeToOutput(path, [&](llvm::raw_ostream &os) {
    os << text;
    return llvm::Error::success();
  });
}

/// Compiles `<folder>/<name>/sm_90a/rows2`, with the fault if there is one.
llvm::Error prepare(const runtime::Nvrtc &nvrtc, const std::string &folder,
                    const test::Fault *fault) {
  auto config = readFile(kConfig);
  if (!config)
    return config.takeError();
  const std::string out = folder + "/" + (fault ? fault->name : "none");
  if (auto code = llvm::sys::fs::create_directories(out))
    return problem("{0}: {1}", out, code.message());
  if (auto error = writeFile(out + "/config.json", *config))
    return error;
  auto subject = compileSubject({.config = *config,
                                 .name = "qwen3-moe-small",
                                 .rows = 2,
                                 .sms = 8,
                                 .tp = fault ? fault->tp : 1,
                                 .cubins = true,
                                 .outDir = out});
  if (!subject)
    return subject.takeError();
  if (!fault)
    return llvm::Error::success();
  runtime::Plan plan = (*subject)->plan;
  for (runtime::Kernel &kernel : plan.kernels) {
    if (kernel.name != "layer")
      continue;
    const std::string file = (*subject)->folder + "/" + kernel.file;
    auto source = readFile(file);
    if (!source)
      return source.takeError();
    auto planted = test::plant(*fault, *source);
    if (!planted)
      return planted.takeError();
    std::map<llvm::StringRef, llvm::StringRef> headers(planted->headers.begin(),
                                                       planted->headers.end());
    auto compiled = nvrtc.compile(planted->source, "layer.cu", headers, plan.target);
    if (!compiled)
      return compiled.takeError();
    kernel.cubinDigest = runtime::digestOf(compiled->cubin);
    if (auto error = writeFile(file, planted->source))
      return error;
    if (auto error = writeFile((*subject)->folder + "/" + kernel.cubin, compiled->cubin))
      return error;
  }
  return runtime::writePlan(plan, (*subject)->folder + "/plan.json");
}

llvm::Error prepareAll(const std::string &folder) {
  auto nvrtc = runtime::Nvrtc::load();
  if (!nvrtc)
    return nvrtc.takeError();
  if (auto error = prepare(*nvrtc, folder, nullptr))
    return error;
  for (const test::Fault &fault : test::faults())
    if (auto error = prepare(*nvrtc, folder, &fault))
      return problem("{0}: {1}", fault.name, llvm::toString(std::move(error)));
  return llvm::Error::success();
}

/// The only plan in a folder.
std::string planFolder(const std::string &folder) {
  std::error_code error;
  llvm::sys::fs::directory_iterator it(folder, error);
  return error || it == llvm::sys::fs::directory_iterator() ? folder : it->path();
}

llvm::Error run(const std::string &folder, llvm::StringRef name) {
  const test::Fault *fault = nullptr;
  for (const test::Fault &each : test::faults())
    if (name == each.name)
      fault = &each;
  if (!fault && name != "none")
    return problem("expected a fault of `faults list` or none but got '{0}'", name);
  auto artifact = test::Artifact::load(planFolder(folder + "/" + name.str() + "/sm_90a"));
  if (!artifact)
    return artifact.takeError();
  auto backend = runtime::CudaBackend::create();
  if (!backend)
    return backend.takeError();
  auto session =
      Session::create(*(*artifact)->graph, (*artifact)->plan, (*artifact)->folder, **backend,
                      {.deadlineNs = kDeadlineNs, .ranks = {.together = (*artifact)->plan.tp > 1}});
  if (!session)
    return session.takeError();
  const auto begin = std::chrono::steady_clock::now();
  auto outcome = (*session)->run({.sequences = {{.start = 33, .rows = 1, .content = 0},
                                                {.start = 17, .rows = 1, .content = 1}}});
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (!fault) {
    if (!outcome)
      return outcome.takeError();
    llvm::outs() << llvm::formatv("none: ends well, {0:f3} s\n", seconds);
    return llvm::Error::success();
  }
  if (outcome)
    return problem("{0} ({1}): expected a missed deadline but the step ended well", name,
                   fault->what);
  const std::string said = llvm::toString(outcome.takeError());
  llvm::outs() << llvm::formatv("{0}: {1}: after {2:f3} s: {3}\n", name, fault->what, seconds,
                                llvm::StringRef(said).split('\n').first);
  if (test::namedEdge(said) != fault->edge)
    return problem("{0}: expected the edge {1} to be named", name, fault->edge);
  if (seconds > double(kDeadlineNs) * 1e-9 + kMostSeconds)
    return problem("{0}: took {1} s, expected at most {2} s after the deadline", name, seconds,
                   kMostSeconds);
  return llvm::Error::success();
}

llvm::Error dispatch(llvm::ArrayRef<llvm::StringRef> words) {
  if (words.size() == 2 && words[0] == "prepare")
    return prepareAll(words[1].str());
  if (words.size() == 2 && words[0] == "list") {
    llvm::outs() << "none\n";
    for (const test::Fault &fault : test::faults())
      llvm::outs() << fault.name << "\n";
    return llvm::Error::success();
  }
  if (words.size() == 3 && words[0] == "run")
    return run(words[1].str(), words[2]);
  return problem("expected `prepare FOLDER`, `list FOLDER` or `run FOLDER NAME`");
}

} // namespace

int main(int argc, char **argv) {
  if (auto error = dispatch(llvm::SmallVector<llvm::StringRef>(argv + 1, argv + argc))) {
    llvm::errs() << "faults: " << llvm::toString(std::move(error)) << "\n";
    return 1;
  }
  return 0;
}
