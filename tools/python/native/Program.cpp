//===- Program.cpp - what the Python module binds ---------------------------===//

#include "tools/python/native/Program.h"

#include "codegen/Emitter.h"
#include "passes/verify/Verify.h"
#include "tools/check/Backends.h"
#include "tools/megalith-opt/Registration.h"
#include "tools/megalith/Failure.h"
#include "tools/megalith/Verification.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"

using namespace llvm;

namespace megalith::python {

using cli::Exit;
using cli::failure;
using cli::with;

namespace {

/// Collects the errors of a context, with their places and notes, while it lives.
class Collector {
public:
  Collector(mlir::MLIRContext &context, Messages &messages)
      : handler(&context, [&messages](mlir::Diagnostic &diagnostic) {
          if (diagnostic.getSeverity() != mlir::DiagnosticSeverity::Error)
            return;
          std::string text = lineOf(diagnostic, "error");
          for (mlir::Diagnostic &note : diagnostic.getNotes())
            text += "\n" + lineOf(note, "note");
          messages.push_back(std::move(text));
        }) {
    // The place says which operation it is; its generic form would be a note of many lines.
    context.printOpOnDiagnostic(false);
  }

private:
  static std::string lineOf(mlir::Diagnostic &diagnostic, StringRef severity) {
    std::string text;
    raw_string_ostream os(text);
    if (auto place = diagnostic.getLocation()->findInstanceOf<mlir::FileLineColLoc>())
      os << place.getFilename().getValue() << ":" << place.getLine() << ":" << place.getColumn()
         << ": ";
    os << severity << ": " << diagnostic.str();
    return text;
  }

  mlir::ScopedDiagnosticHandler handler;
};

/// One line for an error whose reasons were collected.
Error summed(Exit code, const Twine &what, const Messages &messages) {
  std::string first = StringRef(messages.front()).split('\n').first.str();
  const std::string more =
      messages.size() > 1 ? formatv(" (and {0} more)", messages.size() - 1).str() : "";
  return failure(code, "{0}: {1}{2}", what.str(), first, more);
}

struct TemporaryFolder {
  SmallString<128> path;
  ~TemporaryFolder() {
    if (!path.empty())
      sys::fs::remove_directories(path);
  }
};

Expected<reference::Fault> faultOf(StringRef name) {
  if (name.empty())
    return reference::Fault::None;
  std::vector<std::string> names;
  for (reference::Fault fault : reference::allFaults()) {
    if (name == StringRef(reference::faultName(fault)))
      return fault;
    names.emplace_back(reference::faultName(fault));
  }
  return failure(Exit::CommandLine, "fault: expected one of {0} but got '{1}'", join(names, ", "),
                 name);
}

} // namespace

//===----------------------------------------------------------------------===//
// Programs
//===----------------------------------------------------------------------===//

Expected<std::unique_ptr<Program>> Program::create(cli::CompileRequest request,
                                                   cli::Progress progress) {
  if (!is_contained(cli::targets(), request.target))
    return failure(Exit::CommandLine, "target: expected one of {0} but got '{1}'",
                   join(cli::targets(), ", "), request.target);
  if (!is_contained(cli::rowsBuckets(), std::to_string(request.rows)))
    return failure(Exit::CommandLine, "rows: expected one of {0} but got {1}",
                   join(cli::rowsBuckets(), ", "), request.rows);
  if (request.sms < 0 || request.sms > 1024)
    return failure(Exit::CommandLine, "sms: expected a number from 1 to 1024 but got {0}",
                   request.sms);
  if (!request.sms)
    request.sms = cli::defaultSms(request.target);
  request.prove = false;
  auto compilation = cli::Compilation::create(std::move(request), std::move(progress));
  if (!compilation)
    return compilation.takeError();
  auto program = std::make_unique<Program>();
  program->compilation = std::move(*compilation);
  return program;
}

Error Program::verify(int cases, Messages &messages) {
  const std::lock_guard lock(mutex);
  Collector collector(compilation->getContext(), messages);
  if (mlir::succeeded(verify::verifyPlan(compilation->kernels(), cases)))
    return Error::success();
  const cli::CompileRequest &request = compilation->getRequest();
  return summed(Exit::Proof,
                formatv("{0}: rows {1}, {2}: not proved, please report this as a fault of the "
                        "compiler",
                        request.source, request.rows, request.target)
                    .str(),
                messages);
}

Texts Program::ir() const {
  Texts texts = {{"import", compilation->graphText().str()}};
  append_range(texts, compilation->snapshots());
  return texts;
}

Expected<Texts> Program::sources(bool digests) const {
  const std::lock_guard lock(mutex);
  auto printed = compilation->print(digests);
  if (!printed)
    return printed.takeError();
  Texts texts;
  for (size_t i = 0; i < printed->sources.size(); ++i)
    texts.emplace_back(printed->plan.kernels[i].name, std::move(printed->sources[i]));
  return texts;
}

Expected<std::string> Program::plan() const {
  const std::lock_guard lock(mutex);
  auto printed = compilation->print();
  if (!printed)
    return printed.takeError();
  return runtime::toJson(printed->plan);
}

Expected<std::string> Program::save(StringRef folder, bool cubins, bool ir) {
  const std::lock_guard lock(mutex);
  if (Error error = cli::checkPlace(folder, compilation->getRequest()))
    return error;
  auto artifact = compilation->write(folder, cubins, ir);
  if (!artifact)
    return artifact.takeError();
  return artifact->folder;
}

Expected<RunResult> Program::run(RunRequest request) {
  const std::lock_guard lock(mutex);
  if (request.backend != "host" && request.backend != "cuda")
    return failure(Exit::CommandLine, "backend: expected one of host, cuda but got '{0}'",
                   request.backend);
  auto fault = faultOf(request.fault);
  if (!fault)
    return fault.takeError();
  request.options.fault = *fault;
  auto printed = compilation->print();
  if (!printed)
    return printed.takeError();
  if (Error error = request.workload.check(printed->plan))
    return with(Exit::CommandLine, std::move(error));
  const std::optional<int64_t> layer = request.options.layer;
  if (layer && (*layer < 0 || *layer >= printed->plan.layers))
    return failure(Exit::CommandLine, "layer: expected a number from 0 to {0} but got {1}",
                   printed->plan.layers - 1, *layer);

  // First of all, since there may be none.
  auto backend = check::openBackend(request.backend, request.scheduleSeed);
  if (!backend)
    return with(Exit::Run, backend.takeError());
  TemporaryFolder temporary;
  if (auto code = sys::fs::createUniqueDirectory("megalith", temporary.path))
    return failure(Exit::Run,
                   "cannot make a temporary folder: {0}; set TMPDIR to one that can be written",
                   code.message());
  auto artifact = compilation->write(temporary.path, request.backend == "cuda", /*saveIr=*/false);
  if (!artifact)
    return artifact.takeError();
  request.options.open = check::amplifies(compilation->graph());
  request.options.maxPages = request.workload.maxPages();
  request.options.poolPages = request.workload.totalPages();
  auto session = check::Session::create(compilation->graph(), artifact->plan, artifact->folder,
                                        **backend, request.options);
  if (!session)
    return with(Exit::Run, session.takeError());
  RunResult result;
  auto report = (*session)->compare(request.workload, nullptr, &result.values);
  if (!report)
    return with(Exit::Run, report.takeError());
  result.report = std::move(*report);
  for (int64_t step = 0; step < request.workload.steps; ++step)
    result.steps.push_back(check::stepOf(
        check::sequencesOf(request.workload, step, artifact->plan.vocab), artifact->plan.rows));
  return result;
}

//===----------------------------------------------------------------------===//
// Texts
//===----------------------------------------------------------------------===//

/// With what the parser said in one line.
static Expected<mlir::OwningOpRef<mlir::ModuleOp>> parse(mlir::MLIRContext &context, StringRef text,
                                                         StringRef name, const Messages &messages,
                                                         cli::Places places) {
  auto module = cli::parseKernels(context, text, name, nullptr, places);
  if (module || messages.empty())
    return module;
  consumeError(module.takeError());
  return summed(Exit::Input, name, messages);
}

Expected<int64_t> verifyText(StringRef text, StringRef name, int cases, Messages &messages) {
  mlir::DialectRegistry registry;
  registerDialects(registry);
  mlir::MLIRContext context(registry);
  Collector collector(context, messages);
  auto module = parse(context, text, name, messages, cli::Places::Text);
  if (!module)
    return module.takeError();
  if (mlir::failed(verify::verifyPlan(**module, cases)))
    return summed(Exit::Proof, name + ": not proved", messages);
  return int64_t(range_size((*module)->getOps<task::KernelOp>()));
}

Expected<Texts> emitText(StringRef text, StringRef name, bool digests, Messages &messages) {
  mlir::DialectRegistry registry;
  registerDialects(registry);
  mlir::MLIRContext context(registry);
  Collector collector(context, messages);
  auto module = parse(context, text, name, messages, cli::Places::Written);
  if (!module)
    return module.takeError();
  Texts texts;
  for (task::KernelOp kernel : (*module)->getOps<task::KernelOp>()) {
    mlir::FailureOr<std::string> source = emitKernel(kernel, {.digests = digests});
    if (mlir::failed(source))
      return summed(Exit::Input, name, messages);
    texts.emplace_back(kernel.getSymName(), std::move(*source));
  }
  return texts;
}

} // namespace megalith::python
