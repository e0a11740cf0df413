//===- Compile.cpp - From kernels to an artifact on disk --------------------===//

#include "codegen/Compile.h"

#include "codegen/Advance.h"
#include "codegen/headers.h"
#include "runtime/kernel_cache.h"
#include "runtime/nvrtc.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <future>
#include <optional>

using namespace mlir;
using namespace megalith::task;

namespace megalith {

namespace {

/// A folder that takes its final name when all files are in it, or goes.
class Staging {
public:
  ~Staging() {
    if (!folder.empty())
      llvm::sys::fs::remove_directories(folder);
    // Folders made on the way go too, as far as they are empty.
    for (const std::string &made : llvm::reverse(madeParents))
      llvm::sys::fs::remove(made);
  }

  /// Makes the folder beside `destination`.
  llvm::Error create(StringRef destination) {
    final = destination.str();
    const StringRef parent = llvm::sys::path::parent_path(destination);
    if (llvm::Error error = makeParents(parent))
      return error;
    const std::string model =
        (parent + "/." + llvm::sys::path::filename(destination) + "-%%%%%%%%").str();
    for (int attempt = 0; attempt < 16; ++attempt) {
      SmallString<128> candidate;
      llvm::sys::fs::createUniquePath(model, candidate, /*MakeAbsolute=*/false);
      std::error_code error = llvm::sys::fs::create_directory(candidate, /*IgnoreExisting=*/false);
      if (!error) {
        folder = candidate.str().str();
        return llvm::Error::success();
      }
      if (error != std::errc::file_exists)
        return failed("create", candidate, error);
    }
    return llvm::createStringError("cannot create a folder beside " + destination);
  }

  llvm::Error write(StringRef name, StringRef text) {
    SmallString<128> file(folder);
    llvm::sys::path::append(file, name);
    if (auto error = llvm::sys::fs::create_directories(llvm::sys::path::parent_path(file)))
      return failed("create the folder of", file, error);
    std::error_code error;
    llvm::raw_fd_ostream stream(file, error);
    if (!error) {
      stream << text;
      stream.close();
      error = stream.error();
      stream.clear_error();
    }
    return error ? failed("write", file, error) : llvm::Error::success();
  }

  /// Takes the final name; what had it goes.
  llvm::Error commit() {
    std::string old;
    if (llvm::sys::fs::exists(final)) {
      old = folder + "-old";
      if (auto error = llvm::sys::fs::rename(final, old))
        return failed("replace", final, error);
    }
    if (auto error = llvm::sys::fs::rename(folder, final)) {
      if (!old.empty())
        llvm::sys::fs::rename(old, final);
      return failed("write", final, error);
    }
    folder.clear();
    madeParents.clear();
    if (!old.empty())
      llvm::sys::fs::remove_directories(old);
    return llvm::Error::success();
  }

private:
  static llvm::Error failed(StringRef verb, StringRef file, std::error_code error) {
    return llvm::createStringError(error, "cannot " + verb + " " + file + ": " + error.message());
  }

  llvm::Error makeParents(StringRef path) {
    if (path.empty() || llvm::sys::fs::exists(path))
      return llvm::Error::success();
    if (llvm::Error error = makeParents(llvm::sys::path::parent_path(path)))
      return error;
    if (auto error = llvm::sys::fs::create_directory(path))
      return failed("create", path, error);
    madeParents.push_back(path.str());
    return llvm::Error::success();
  }

  std::string final, folder;
  std::vector<std::string> madeParents; ///< outermost first
};

/// The kernel's source; the error is the first that the emitter reports.
llvm::Expected<std::string> emitOrExplain(KernelOp kernel, const EmitOptions &options) {
  std::string message;
  ScopedDiagnosticHandler handler(kernel.getContext(), [&](Diagnostic &diagnostic) {
    if (diagnostic.getSeverity() != DiagnosticSeverity::Error)
      return failure();
    if (message.empty())
      message = diagnostic.str();
    return success();
  });
  FailureOr<std::string> source = emitKernel(kernel, options);
  if (succeeded(source))
    return *source;
  return llvm::createStringError("kernel '" + kernel.getSymName() + "': " + message);
}

/// The kernel of each launch of a step.
std::vector<LaunchRequest> launchesOf(ModuleOp module, ArrayRef<KernelOp> kernels) {
  std::vector<LaunchRequest> launches;
  if (auto names = module->getAttrOfType<ArrayAttr>(kLaunchesAttr))
    for (auto name : names.getAsRange<FlatSymbolRefAttr>())
      launches.push_back({name.getValue().str(), {}});
  else
    for (KernelOp kernel : kernels)
      launches.push_back({kernel.getSymName().str(), {}});
  if (auto layers = module->getAttrOfType<DenseI64ArrayAttr>(kLaunchLayersAttr))
    for (auto [launch, layer] : llvm::zip(launches, layers.asArrayRef()))
      launch.layer = layer;
  return launches;
}

/// A line of build.log: the numbers that people compare.
std::string resourceLine(const runtime::Kernel &kernel) {
  const runtime::KernelResources &r = *kernel.resources;
  return llvm::formatv("{0}: {1} registers, {2} bytes spilled, {3} bytes of stack, {4} bytes of "
                       "shared memory ({5} static), {6} bytes of code\n",
                       kernel.name, r.registers, r.spillBytes, r.stackBytes,
                       kernel.smemBytes + r.staticSmemBytes, r.staticSmemBytes, r.codeBytes)
      .str();
}

void tell(const CompileOptions &options, StringRef work) {
  if (options.progress)
    options.progress(work);
}

class Compiler {
public:
  explicit Compiler(const CompileOptions &options) : options(options) {}

  llvm::Expected<Artifact> run(PrintedKernels printed) {
    artifact.plan = std::move(printed.plan);
    sources = std::move(printed.sources);
    SmallString<128> folder(options.outDir);
    llvm::sys::path::append(
        folder, artifact.plan.target,
        runtime::artifactName(artifact.plan.rows, artifact.plan.launchMode, artifact.plan.tp));
    artifact.folder = folder.str().str();
    if (llvm::Error error = staging.create(folder))
      return error;
    for (size_t i = 0; i < sources.size(); ++i)
      if (llvm::Error error = staging.write(artifact.plan.kernels[i].file, sources[i]))
        return error;
    if (options.cubins) {
      tell(options, "nvrtc");
      if (llvm::Error error = compileAll())
        return error;
    }
    tell(options, "write");
    if (llvm::Error error = writeRest())
      return error;
    if (llvm::Error error = staging.commit())
      return error;
    return std::move(artifact);
  }

private:
  /// Cubins, and what NVRTC reports of them. Kernels are compiled side by side.
  llvm::Error compileAll() {
    auto nvrtc = runtime::Nvrtc::load();
    if (!nvrtc)
      return nvrtc.takeError();
    artifact.plan.cudaVersion = nvrtc->version(); // a driver older than it is refused
    log += "NVRTC " + nvrtc->versionText() + ", " + artifact.plan.target + "\n";
    using Result = std::optional<llvm::Expected<runtime::Compiled>>;
    std::vector<std::future<Result>> pending;
    for (size_t i = 0; i < sources.size(); ++i)
      pending.push_back(std::async(std::launch::async, [&, i] {
        const std::string name = artifact.plan.kernels[i].name + ".cu";
        if (options.cache)
          return Result(runtime::compileCached(*nvrtc, sources[i], name, deviceHeaders(),
                                               artifact.plan.target));
        return Result(nvrtc->compile(sources[i], name, deviceHeaders(), artifact.plan.target));
      }));
    llvm::Error errors = llvm::Error::success();
    for (size_t i = 0; i < pending.size(); ++i) {
      Result compiled = pending[i].get();
      llvm::Error error =
          *compiled ? addCubin(artifact.plan.kernels[i], **compiled) : compiled->takeError();
      // The first is enough for the user, but each must be looked at.
      if (errors)
        llvm::consumeError(std::move(error));
      else
        errors = std::move(error);
    }
    return errors;
  }

  llvm::Error addCubin(runtime::Kernel &kernel, const runtime::Compiled &compiled) {
    const auto found = compiled.resources.find(kernel.name);
    if (found == compiled.resources.end())
      return llvm::createStringError("kernel '" + kernel.name +
                                     "': the cubin holds no kernel of that name");
    kernel.resources = found->second;
    kernel.cubin = "kernels/" + kernel.name + ".cubin";
    kernel.cubinDigest = runtime::digestOf(compiled.cubin);
    log += resourceLine(kernel) + compiled.log;
    return staging.write(kernel.cubin, compiled.cubin);
  }

  llvm::Error writeRest() {
    if (llvm::Error error = staging.write("plan.json", runtime::toJson(artifact.plan)))
      return error;
    if (options.cubins)
      if (llvm::Error error = staging.write("build.log", log))
        return error;
    for (const auto &[name, text] : options.files)
      if (llvm::Error error = staging.write(name, text))
        return error;
    if (options.filesOf)
      for (const auto &[name, text] : options.filesOf(artifact.plan))
        if (llvm::Error error = staging.write(name, text))
          return error;
    for (size_t i = 0; i < options.snapshots.size(); ++i) {
      const auto &[pass, text] = options.snapshots[i];
      if (llvm::Error error =
              staging.write(llvm::formatv("ir/{0,0+2}-{1}.mlir", i, pass).str(), text))
        return error;
    }
    return llvm::Error::success();
  }

  const CompileOptions &options;
  std::vector<std::string> sources; ///< in the kernels' order
  std::string log;
  Staging staging;
  Artifact artifact;
};

} // namespace

llvm::Expected<PrintedKernels> printKernels(ModuleOp module, const ModelFacts &facts,
                                            const EmitOptions &options) {
  const SmallVector<KernelOp> kernels(module.getOps<KernelOp>());
  auto plan = buildPlan(kernels, launchesOf(module, kernels), facts);
  if (!plan)
    return plan.takeError();
  PrintedKernels printed{std::move(*plan), {}};
  for (KernelOp kernel : kernels) {
    auto source = emitOrExplain(kernel, options);
    if (!source)
      return source.takeError();
    printed.sources.push_back(std::move(*source));
  }
  if (std::string source = addAdvance(printed.plan); !source.empty())
    printed.sources.push_back(std::move(source));
  return printed;
}

llvm::Expected<Artifact> compileKernels(ModuleOp module, const ModelFacts &facts,
                                        const CompileOptions &options) {
  tell(options, "print");
  auto printed = printKernels(module, facts, options.emit);
  if (!printed)
    return printed.takeError();
  return Compiler(options).run(std::move(*printed));
}

} // namespace megalith
