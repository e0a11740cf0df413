//===- NvrtcTest.cpp - Compiling, and reading cubins ----------------------===//
//
// Where NVRTC is not installed the compiling cases only warn.
//
//===----------------------------------------------------------------------===//

#include "runtime/nvrtc.h"
#include "runtime/kernel_cache.h"

#include "codegen/headers.h"
#include "runtime/code_lines.h"
#include "runtime/cubin.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <elf.h>
#include <optional>

using namespace megalith::runtime;
using Catch::Matchers::Contains;

namespace {

std::optional<Nvrtc> nvrtc() {
  auto library = Nvrtc::load();
  if (library)
    return *library;
  WARN("skipped: " << llvm::toString(library.takeError()));
  return std::nullopt;
}

/// Sets environment variables and puts the old values back.
class Environment {
public:
  void set(const char *name, const std::string &value) {
    const char *old = std::getenv(name);
    saved.emplace_back(name, old ? std::optional<std::string>(old) : std::nullopt);
    setenv(name, value.c_str(), 1);
  }
  ~Environment() {
    for (auto it = saved.rbegin(); it != saved.rend(); ++it)
      if (it->second)
        setenv(it->first, it->second->c_str(), 1);
      else
        unsetenv(it->first);
  }

private:
  std::vector<std::pair<const char *, std::optional<std::string>>> saved;
};

// Two kernels whose numbers are known: static shared memory, bounds, a stack frame.
constexpr const char *kSource = R"(
#include "numbers.h"
extern "C" __global__ void __launch_bounds__(352, 1) sums(float *out, int n) {
  __shared__ float part[kWords];
  part[threadIdx.x] = out[threadIdx.x];
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < n; ++i)
    sum += part[(threadIdx.x + i) % kWords];
  out[threadIdx.x] = sum;
}
extern "C" __global__ void stacked(int *out, int index) {
  int table[64];
  for (int i = 0; i < 64; ++i)
    table[out[i] & 63] = i;
  out[index] = table[index] + table[index + 1];
}
extern "C" __global__ void __launch_bounds__(1024, 2) spilling(float *out) {
  float v[96];
  for (int i = 0; i < 96; ++i) v[i] = out[threadIdx.x * 96 + i];
  __syncthreads();
  for (int r = 0; r < 96; ++r) { float s = v[r]; for (int i = 0; i < 96; ++i) { v[i] = v[i] * s + v[(i * 7 + r) % 96]; } }
  for (int i = 0; i < 96; ++i) out[threadIdx.x * 96 + i] = v[i];
}
)";
const std::map<llvm::StringRef, llvm::StringRef> kHeaders = {
    {"numbers.h", "constexpr int kWords = 512;\n"}};

} // namespace

TEST_CASE("kernels compile for both targets and their cubins can be read") {
  auto library = nvrtc();
  if (!library)
    return;
  for (auto [target, sm] : {std::pair{"sm_90a", 90}, {"sm_100a", 100}}) {
    CAPTURE(target);
    auto compiled = library->compile(kSource, "sums.cu", kHeaders, target, {.ptx = true});
    REQUIRE(bool(compiled));
    CHECK_THAT(compiled->ptx, Contains(std::string(".target ") + target));
    auto cubin = parseCubin(compiled->cubin);
    REQUIRE(bool(cubin));
    CHECK(cubin->sm == sm);
    CHECK(cubin->kernels.size() == 3);
    const CubinKernel *sums = cubin->kernel("sums");
    REQUIRE(sums);
    CHECK(sums->staticSmemBytes == 2048);
    CHECK(sums->maxThreads == 352);
    CHECK(sums->parameterBytes == 12);
    CHECK(sums->stackBytes == 0);
    CHECK(sums->registers >= 8);
    CHECK(sums->registers <= 64);
    CHECK(sums->codeBytes >= 256);
    CHECK(sums->codeBytes % 128 == 0);
    CHECK(cubin->kernel("stacked")->stackBytes == 256);
    // ptxas' own words on the same numbers.
    CHECK_THAT(compiled->log, Contains("Used " + std::to_string(sums->registers) + " registers"));
    CHECK(compiled->log.find('\0') == std::string::npos);
    CHECK(compiled->resources.at("sums").registers == sums->registers);
    CHECK(compiled->resources.at("sums").spillBytes == 0);
    CHECK(compiled->resources.at("sums").staticSmemBytes == 2048);
    CHECK(compiled->resources.at("stacked").stackBytes == 256);
    CHECK(compiled->resources.at("stacked").spillBytes == 0);
    // 96 live values in 32 registers.
    CHECK(compiled->resources.at("spilling").spillBytes > 0);
    CHECK(compiled->resources.at("spilling").registers == 32);
    CHECK(cubin->kernel("spilling")->spillInstructions > 0);
  }
}

TEST_CASE("the device platform compiles under NVRTC by include name alone") {
  auto library = nvrtc();
  if (!library)
    return;
  for (const char *target : {"sm_90a", "sm_100a"}) {
    auto compiled = library->compile("#include \"codegen/device/platform.cuh\"\n"
                                     "extern \"C\" __global__ void empty() {}\n",
                                     "empty.cu", megalith::deviceHeaders(), target);
    if (!compiled)
      FAIL(llvm::toString(compiled.takeError()));
  }
}

TEST_CASE("a source that does not compile says where") {
  auto library = nvrtc();
  if (!library)
    return;
  auto compiled =
      library->compile("\n__global__ void k() { undefined_name(); }\n", "bad.cu", {}, "sm_90a");
  REQUIRE(!compiled);
  CHECK_THAT(llvm::toString(compiled.takeError()), Contains("bad.cu does not compile for sm_90a") &&
                                                       Contains("bad.cu(2)") &&
                                                       Contains("undefined_name"));
  auto target = library->compile("__global__ void k() {}", "k.cu", {}, "sm_12z");
  REQUIRE(!target);
  CHECK_THAT(llvm::toString(target.takeError()), Contains("sm_12z"));
}

TEST_CASE("a named file that is not there is an error of its own") {
  Environment environment;
  environment.set("MEGALITH_NVRTC", "/nowhere/libnvrtc.so.13");
  auto library = Nvrtc::load();
  REQUIRE(!library);
  CHECK_THAT(llvm::toString(library.takeError()),
             Contains("$MEGALITH_NVRTC names '/nowhere/libnvrtc.so.13', which does not exist"));
}

TEST_CASE("a named file that is no NVRTC: the error lists the place and how to mend it") {
  Environment environment;
  environment.set("MEGALITH_NVRTC", "/proc/self/exe");
  auto library = Nvrtc::load();
  REQUIRE(!library);
  CHECK_THAT(llvm::toString(library.takeError()),
             Contains("libnvrtc.so.13") && Contains("/proc/self/exe") && Contains("To mend") &&
                 Contains("CUDA_HOME") && Contains("nvidia-cuda-nvrtc"));
}

TEST_CASE("places are searched in the documented order") {
  Environment environment;
  environment.set("MEGALITH_NVRTC", "/first");
  environment.set("MEGALITH_CUDA_HOME", "/second");
  environment.set("CUDA_HOME", "/third");
  environment.set("CUDA_PATH", "/third"); // named twice, searched once
  environment.set("VIRTUAL_ENV", "/fourth");
  environment.set("XDG_CACHE_HOME", "/fifth");
  CHECK(nvrtcSearchPath() ==
        std::vector<std::string>{
            "/first", "/second/lib64/libnvrtc.so.13", "/second/lib/libnvrtc.so.13",
            "/third/lib64/libnvrtc.so.13", "/third/lib/libnvrtc.so.13",
            "/usr/local/cuda/lib64/libnvrtc.so.13", "/usr/local/cuda/lib/libnvrtc.so.13",
            "/fourth/lib/python3*/site-packages/nvidia/cu13/lib/libnvrtc.so.13",
            "/fifth/megalith/nvrtc-venv/lib/python3*/site-packages/nvidia/cu13/lib/libnvrtc.so.13",
            "libnvrtc.so.13"});
}

TEST_CASE("files that are no cubins") {
  auto failure = [](llvm::StringRef bytes) {
    auto cubin = parseCubin(bytes);
    REQUIRE(!cubin);
    return llvm::toString(cubin.takeError());
  };
  CHECK_THAT(failure(""), Contains("no 64-bit ELF header in its 0 bytes"));
  CHECK_THAT(failure(std::string(200, 'x')), Contains("not a cubin"));
  Elf64_Ehdr elf = {};
  std::memcpy(elf.e_ident, ELFMAG, SELFMAG);
  elf.e_ident[EI_CLASS] = ELFCLASS64;
  elf.e_machine = EM_X86_64;
  auto bytes = [&] { return llvm::StringRef(reinterpret_cast<const char *>(&elf), sizeof elf); };
  CHECK_THAT(failure(bytes()), Contains("machine 62, expected 190"));
  elf.e_machine = 190;
  elf.e_shnum = 3;
  elf.e_shoff = 1 << 20;
  CHECK_THAT(failure(bytes()), Contains("section header 0 lies outside"));
  elf.e_shnum = 0;
  CHECK_THAT(failure(bytes()), Contains("no section names"));
}

TEST_CASE("a truncated cubin is refused, whatever is missing") {
  auto library = nvrtc();
  if (!library)
    return;
  auto compiled = library->compile(kSource, "sums.cu", kHeaders, "sm_90a");
  REQUIRE(bool(compiled));
  for (size_t size : {size_t(10), size_t(64), compiled->cubin.size() / 2}) {
    auto cubin = parseCubin(llvm::StringRef(compiled->cubin).take_front(size));
    CHECK(!cubin);
    if (!cubin)
      llvm::consumeError(cubin.takeError());
  }
}

TEST_CASE("an error message takes the log's first lines") {
  CHECK(firstLines("a\n\nb\nc\n", 2) == "  a\n  b\n  ...");
  CHECK(firstLines("a\n", 2) == "  a");
  CHECK(firstLines("", 2) == "");
}

TEST_CASE("a cached kernel equals a fresh one; a changed or damaged one is compiled again") {
  auto library = nvrtc();
  if (!library)
    return;
  llvm::SmallString<128> cache;
  REQUIRE(!llvm::sys::fs::createUniqueDirectory("cubins", cache));
  auto entries = [&] {
    std::vector<std::string> found;
    std::error_code error;
    for (llvm::sys::fs::directory_iterator it(cache + "/cuda", error), end; it != end && !error;
         it.increment(error))
      found.push_back(it->path());
    return found;
  };
  auto compile = [&](const std::string &source, llvm::StringRef target, NvrtcOptions options) {
    auto compiled = compileCached(*library, source, "sums.cu", kHeaders, target, options, cache);
    REQUIRE(bool(compiled));
    return *compiled;
  };
  const Compiled fresh = compile(kSource, "sm_90a", {.ptx = true});
  REQUIRE(entries().size() == 1);
  const std::string cubin = entries()[0] + "/kernel.cubin";
  // What the entry holds is what is returned, not compiled again: mark the log to see it.
  REQUIRE(!writeWhole(entries()[0] + "/nvrtc.log", fresh.log + "marked"));
  const Compiled again = compile(kSource, "sm_90a", {.ptx = true});
  CHECK(again.log == fresh.log + "marked");
  CHECK(again.cubin == fresh.cubin);
  CHECK(again.ptx == fresh.ptx);
  CHECK(again.resources == fresh.resources);

  REQUIRE(!writeWhole(cubin, "damaged"));
  CHECK(compile(kSource, "sm_90a", {.ptx = true}).log == fresh.log);
  // One byte of code, which no reader of the file's form would notice.
  std::string other = fresh.cubin;
  other[other.size() / 2] ^= 1;
  REQUIRE(!writeWhole(cubin, other));
  CHECK(compile(kSource, "sm_90a", {.ptx = true}).cubin == fresh.cubin);
  CHECK(entries().size() == 1);
  compile(std::string(kSource) + "// changed", "sm_90a", {.ptx = true});
  CHECK(entries().size() == 2);
  compile(kSource, "sm_100a", {.ptx = true});
  CHECK(entries().size() == 3);
  compile(kSource, "sm_90a", {.ptx = true, .lineInfo = true});
  CHECK(entries().size() == 4);
  llvm::sys::fs::remove_directories(cache);
}

TEST_CASE("a cache that cannot be written only costs time") {
  auto library = nvrtc();
  if (!library)
    return;
  auto compiled =
      compileCached(*library, kSource, "sums.cu", kHeaders, "sm_90a", {}, "/proc/nowhere");
  REQUIRE(bool(compiled));
  CHECK(!compiled->cubin.empty());
}

TEST_CASE("a cache that cannot be written says how to mend it") {
  auto entry = cacheEntry("/proc/nowhere", "cuda", "k.cu", "key");
  REQUIRE(!entry);
  CHECK_THAT(llvm::toString(entry.takeError()),
             Contains("/proc/nowhere/cuda/k-") && Contains("MEGALITH_CACHE"));
}

TEST_CASE("code leads back to lines of the kernel's own source") {
  auto library = nvrtc();
  if (!library)
    return;
  // Line 3 calls what is inlined, line 4 what is not.
  const std::string source = "#include \"lines.h\"\n"
                             "extern \"C\" __global__ void lines(float *out) {\n"
                             "  out[threadIdx.x] = inlined(out[threadIdx.x]);\n"
                             "  out[threadIdx.x + 1] = called(out[threadIdx.x]);\n"
                             "}\n";
  const std::map<llvm::StringRef, llvm::StringRef> headers = {
      {"lines.h", "__device__ __forceinline__ float deeper(float x) { return x / 3 + 1; }\n"
                  "__device__ __forceinline__ float inlined(float x) { return deeper(x * x); }\n"
                  "__device__ __noinline__ float called(float x) { return x / 7 - 2; }\n"}};
  auto compiled = library->compile(source, "lines.cu", headers, "sm_90a", {.lineInfo = true});
  REQUIRE(bool(compiled));
  auto lines = readCodeLines(compiled->cubin, "lines.cu");
  REQUIRE(bool(lines));
  int64_t at = 0;
  std::map<int64_t, int64_t> bytes;
  for (const CodeLine &line : *lines) {
    CHECK(line.offset == at);
    at += line.bytes;
    bytes[line.line] += line.bytes;
  }
  CHECK(at == compiled->resources.at("lines").codeBytes);
  for (int64_t line : {0, 3, 4})
    CHECK(bytes[line] > 0);
  for (const auto &[line, count] : bytes)
    CHECK(line <= 5);

  SECTION("a cubin without line numbers says so") {
    auto plain = library->compile(source, "lines.cu", headers, "sm_90a");
    REQUIRE(bool(plain));
    auto none = readCodeLines(plain->cubin, "lines.cu");
    REQUIRE(!none);
    CHECK_THAT(llvm::toString(none.takeError()), Contains("compile with --generate-line-info"));
  }
  SECTION("a damaged one is an error, or has other lines") {
    for (size_t i = 0; i < compiled->cubin.size(); i += 7) {
      std::string damaged = compiled->cubin;
      damaged[i] = char(damaged[i] ^ 0xA5);
      if (auto found = readCodeLines(damaged, "lines.cu"); !found)
        llvm::consumeError(found.takeError());
    }
    auto half = readCodeLines(llvm::StringRef(compiled->cubin).take_front(900), "lines.cu");
    REQUIRE(!half);
    llvm::consumeError(half.takeError());
  }
}
