//===- nvrtc.cpp - dlopen of NVRTC and compilation ------------------------===//

#include "runtime/nvrtc.h"

#include "runtime/cubin.h"
#include "runtime/error.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>

namespace megalith::runtime {

namespace {

// NVRTC's C interface, as documented for CUDA 13; 0 is success.
using Program = struct ProgramHandle *;
using Status = int;
constexpr Status kCompilationFailed = 6;
constexpr int kVersion = 13;
constexpr const char *kSoname = "libnvrtc.so.13";
constexpr const char *kAdvice =
    "set MEGALITH_NVRTC to the file, or CUDA_HOME to a CUDA 13 toolkit, or install it without one: "
    "python3 -m venv ~/.cache/megalith/nvrtc-venv && ~/.cache/megalith/nvrtc-venv/bin/pip install "
    "'nvidia-cuda-nvrtc==13.*'";

std::string environment(const char *name) {
  const char *value = std::getenv(name);
  return value ? value : "";
}

/// The libraries that pip's package puts into a virtual environment.
void addVenv(std::vector<std::string> &places, const std::string &venv) {
  std::error_code ignored;
  std::vector<std::string> found;
  for (llvm::sys::fs::directory_iterator it(venv + "/lib", ignored), end; it != end && !ignored;
       it.increment(ignored))
    if (llvm::sys::path::filename(it->path()).starts_with("python"))
      found.push_back(it->path() + "/site-packages/nvidia/cu13/lib/" + kSoname);
  std::sort(found.begin(), found.end()); // directories come in any order
  if (found.empty())
    found.push_back(venv + "/lib/python3*/site-packages/nvidia/cu13/lib/" + kSoname);
  places.insert(places.end(), found.begin(), found.end());
}

/// libnvrtc opens libnvrtc-builtins by its soname, which the loader finds only if it is loaded
/// already or in its path: load the one beside `file` first.
void loadBuiltins(llvm::StringRef file) {
  const llvm::StringRef folder = llvm::sys::path::parent_path(file);
  std::error_code ignored;
  for (llvm::sys::fs::directory_iterator it(folder, ignored), end; it != end && !ignored;
       it.increment(ignored))
    if (llvm::sys::path::filename(it->path()).starts_with("libnvrtc-builtins.so.") &&
        dlopen(it->path().c_str(), RTLD_NOW | RTLD_GLOBAL))
      return;
}

/// Spilled bytes (stores and loads) of a kernel from ptxas' report, the line after "Function
/// properties for NAME": "0 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads".
int64_t spillBytes(llvm::StringRef log, llvm::StringRef kernel) {
  const std::string head = "Function properties for " + kernel.str() + "\n";
  const size_t at = log.find(head);
  if (at == llvm::StringRef::npos)
    return 0;
  int64_t sum = 0;
  llvm::SmallVector<llvm::StringRef, 3> counts;
  log.substr(at + head.size()).split('\n').first.split(counts, ',');
  for (llvm::StringRef count : counts) {
    int64_t bytes = 0;
    if (count.contains("spill") && !count.trim().split(' ').first.getAsInteger(10, bytes))
      sum += bytes;
  }
  return sum;
}

/// ptxas tells how long it took; without that, equal inputs give equal logs.
std::string withoutTimes(llvm::StringRef log) {
  std::string kept;
  while (!log.empty()) {
    auto [line, rest] = log.split('\n');
    if (!line.contains("Compile time = "))
      kept += line.str() + (log.contains('\n') ? "\n" : "");
    log = rest;
  }
  return kept;
}

} // namespace

struct Nvrtc::Library {
  std::string path;
  int version = 0;

  Status (*nvrtcVersion)(int *, int *);
  const char *(*nvrtcGetErrorString)(Status);
  Status (*nvrtcCreateProgram)(Program *, const char *, const char *, int, const char *const *,
                               const char *const *);
  Status (*nvrtcDestroyProgram)(Program *);
  Status (*nvrtcCompileProgram)(Program, int, const char *const *);
  Status (*nvrtcGetCUBINSize)(Program, size_t *);
  Status (*nvrtcGetCUBIN)(Program, char *);
  Status (*nvrtcGetPTXSize)(Program, size_t *);
  Status (*nvrtcGetPTX)(Program, char *);
  Status (*nvrtcGetProgramLogSize)(Program, size_t *);
  Status (*nvrtcGetProgramLog)(Program, char *);

  /// Resolves every function; false names the first that is missing.
  bool resolve(void *handle, std::string &missing) {
#define MEGALITH_RESOLVE(name)                                                                     \
  if (!(name = reinterpret_cast<decltype(name)>(dlsym(handle, #name)))) {                          \
    missing = #name;                                                                               \
    return false;                                                                                  \
  }
    MEGALITH_RESOLVE(nvrtcVersion)
    MEGALITH_RESOLVE(nvrtcGetErrorString)
    MEGALITH_RESOLVE(nvrtcCreateProgram)
    MEGALITH_RESOLVE(nvrtcDestroyProgram)
    MEGALITH_RESOLVE(nvrtcCompileProgram)
    MEGALITH_RESOLVE(nvrtcGetCUBINSize)
    MEGALITH_RESOLVE(nvrtcGetCUBIN)
    MEGALITH_RESOLVE(nvrtcGetPTXSize)
    MEGALITH_RESOLVE(nvrtcGetPTX)
    MEGALITH_RESOLVE(nvrtcGetProgramLogSize)
    MEGALITH_RESOLVE(nvrtcGetProgramLog)
#undef MEGALITH_RESOLVE
    return true;
  }

  /// Reads one of a program's texts; NVRTC ends log and PTX by one or more zeros, which it counts.
  std::string text(Program program, Status (*size)(Program, size_t *),
                   Status (*get)(Program, char *), bool terminated) const {
    size_t bytes = 0;
    if (size(program, &bytes) || bytes == 0)
      return "";
    std::string result(bytes, '\0');
    if (get(program, result.data()))
      return "";
    if (terminated)
      result.resize(llvm::StringRef(result).rtrim('\0').size());
    return result;
  }
};

std::vector<std::string> nvrtcSearchPath() {
  std::vector<std::string> places;
  if (std::string file = environment("MEGALITH_NVRTC"); !file.empty())
    places.push_back(file);
  std::vector<std::string> homes;
  for (const char *name : {"MEGALITH_CUDA_HOME", "CUDA_HOME", "CUDA_PATH"})
    homes.push_back(environment(name));
  homes.push_back("/usr/local/cuda");
  for (const std::string &home : homes)
    for (const char *folder : {"/lib64/", "/lib/"})
      if (!home.empty() && !llvm::is_contained(places, home + folder + kSoname))
        places.push_back(home + folder + kSoname);
  if (std::string venv = environment("VIRTUAL_ENV"); !venv.empty())
    addVenv(places, venv);
  std::string cache = environment("XDG_CACHE_HOME");
  if (cache.empty() && !environment("HOME").empty())
    cache = environment("HOME") + "/.cache";
  if (!cache.empty())
    addVenv(places, cache + "/megalith/nvrtc-venv");
  places.push_back(kSoname);
  return places;
}

llvm::Expected<Nvrtc> Nvrtc::load() {
  std::string tried;
  // A file that the user named must work: falling back to another one would hide the mistake.
  const std::string named = environment("MEGALITH_NVRTC");
  for (const std::string &place : nvrtcSearchPath()) {
    const bool bare = place == kSoname;
    if (!bare && !llvm::sys::fs::exists(place)) {
      if (place == named)
        return problem("NVRTC: $MEGALITH_NVRTC names '{0}', which does not exist; {1}", named,
                       "point it at a libnvrtc.so.13 or unset it");
      tried += "\n  " + place + ": not there";
      continue;
    }
    if (!bare)
      loadBuiltins(place);
    void *handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
      const char *why = dlerror();
      tried += "\n  " + place + ": " + (why ? why : "cannot be loaded");
      if (place == named)
        break;
      continue;
    }
    auto library = std::make_shared<Library>();
    std::string missing;
    int major = 0, minor = 0;
    if (!library->resolve(handle, missing)) {
      tried += "\n  " + place + ": has no " + missing;
    } else if (library->nvrtcVersion(&major, &minor) || major != kVersion) {
      tried +=
          llvm::formatv("\n  {0}: version {1}.{2}, expected {3}", place, major, minor, kVersion)
              .str();
    } else {
      library->path = place;
      library->version = major * 1000 + minor * 10;
      return Nvrtc(std::move(library));
    }
    if (place == named)
      break;
  }
  return problem(
      "NVRTC {0} (libnvrtc.so.{0}, which compiles kernels) was not found. Looked at:{1}\n"
      "To mend: {2}",
      kVersion, tried, kAdvice);
}

llvm::StringRef Nvrtc::path() const {
  return library->path;
}
int Nvrtc::version() const {
  return library->version;
}
std::string Nvrtc::versionText() const {
  return std::to_string(version() / 1000) + "." + std::to_string(version() % 1000 / 10);
}

std::vector<std::string> nvrtcFlags(llvm::StringRef target, const NvrtcOptions &options) {
  // No contraction: both platforms then round alike (DESIGN section 6).
  std::vector<std::string> flags = {"--gpu-architecture=" + target.str(), "--std=c++20",
                                    "--fmad=false", "--ptxas-options=-v", "--no-source-include"};
  if (options.lineInfo)
    flags.push_back("--generate-line-info");
  flags.insert(flags.end(), options.extra.begin(), options.extra.end());
  return flags;
}

llvm::Error readResources(Compiled &compiled) {
  auto cubin = parseCubin(compiled.cubin);
  if (!cubin)
    return cubin.takeError();
  for (const CubinKernel &kernel : cubin->kernels)
    compiled.resources[kernel.name] = {.registers = kernel.registers,
                                       .spillBytes = spillBytes(compiled.log, kernel.name),
                                       .stackBytes = kernel.stackBytes,
                                       .staticSmemBytes = kernel.staticSmemBytes,
                                       .codeBytes = kernel.codeBytes};
  return llvm::Error::success();
}

llvm::Expected<Compiled> Nvrtc::run(llvm::StringRef source, llvm::StringRef name,
                                    const std::map<llvm::StringRef, llvm::StringRef> &headers,
                                    llvm::StringRef target, const std::vector<std::string> &flags,
                                    bool wantsPtx) const {
  std::vector<std::string> texts, names;
  for (const auto &[header, text] : headers) {
    names.push_back(header.str());
    texts.push_back(text.str());
  }
  std::vector<const char *> textPointers, namePointers, flagPointers;
  for (size_t i = 0; i < texts.size(); ++i) {
    textPointers.push_back(texts[i].c_str());
    namePointers.push_back(names[i].c_str());
  }
  for (const std::string &flag : flags)
    flagPointers.push_back(flag.c_str());

  const std::string sourceText = source.str(), sourceName = name.str();
  Program program = nullptr;
  if (Status status =
          library->nvrtcCreateProgram(&program, sourceText.c_str(), sourceName.c_str(),
                                      int(texts.size()), textPointers.data(), namePointers.data()))
    return problem("NVRTC cannot take {0}: {1}", name, library->nvrtcGetErrorString(status));
  const Status status =
      library->nvrtcCompileProgram(program, int(flagPointers.size()), flagPointers.data());
  Compiled result;
  result.log = withoutTimes(library->text(program, library->nvrtcGetProgramLogSize,
                                          library->nvrtcGetProgramLog, /*terminated=*/true));
  if (!status) {
    result.cubin = library->text(program, library->nvrtcGetCUBINSize, library->nvrtcGetCUBIN,
                                 /*terminated=*/false);
    if (wantsPtx)
      result.ptx = library->text(program, library->nvrtcGetPTXSize, library->nvrtcGetPTX,
                                 /*terminated=*/true);
  }
  library->nvrtcDestroyProgram(&program);
  if (status == kCompilationFailed)
    return problem("{0} does not compile for {1} (NVRTC {2}):\n{3}", name, target, versionText(),
                   firstLines(result.log, 12));
  if (status)
    return problem("NVRTC {0} cannot compile {1} for {2}: {3}\n{4}", versionText(), name, target,
                   library->nvrtcGetErrorString(status), firstLines(result.log, 12));
  return result;
}

llvm::Expected<Compiled> Nvrtc::compile(llvm::StringRef source, llvm::StringRef name,
                                        const std::map<llvm::StringRef, llvm::StringRef> &headers,
                                        llvm::StringRef target, const NvrtcOptions &options) const {
  auto compiled = run(source, name, headers, target, nvrtcFlags(target, options), options.ptx);
  if (!compiled)
    return compiled.takeError();
  if (auto error = readResources(*compiled))
    return error;
  return compiled;
}

llvm::Expected<std::string> Nvrtc::ptx(llvm::StringRef source, llvm::StringRef name,
                                       const std::map<llvm::StringRef, llvm::StringRef> &headers,
                                       llvm::StringRef target) const {
  // Of a virtual architecture NVRTC makes no cubin.
  const std::string arch = "compute_" + target.split('_').second.str();
  auto compiled = run(source, name, headers, target, nvrtcFlags(arch, {}), /*wantsPtx=*/true);
  if (!compiled)
    return compiled.takeError();
  return std::move(compiled->ptx);
}

std::string firstLines(llvm::StringRef log, unsigned count) {
  std::string result;
  while (!log.empty()) {
    auto [line, rest] = log.split('\n');
    log = rest;
    if (line.trim().empty())
      continue;
    if (count-- == 0)
      return result + "\n  ...";
    result += (result.empty() ? "  " : "\n  ") + line.rtrim().str();
  }
  return result;
}

} // namespace megalith::runtime
