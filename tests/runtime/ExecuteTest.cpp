//===- ExecuteTest.cpp - What the executor asks of a backend --------------===//
//
// A backend of plain memory that records launches instead of running them.
//
//===----------------------------------------------------------------------===//

#include "tests/runtime/TinyPlan.h"

#include "runtime/execute.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <map>

using namespace megalith;
using namespace megalith::runtime;
using Catch::Matchers::Contains;

namespace {

class RecordingBackend final : public Backend {
public:
  std::map<std::string, std::vector<unsigned char>> memory;
  std::vector<std::string> loaded;
  std::vector<std::vector<PreparedLaunch>> runs;
  std::vector<uint64_t> bases; ///< launch_base that each run saw
  std::function<llvm::Error(FaultRecord &)> fail;
  OneFault fault;

  unsigned char *at(const std::string &name) { return memory.at(name).data(); }

  llvm::Error check(const Plan &) override { return llvm::Error::success(); }
  llvm::Expected<int> loadKernel(const Plan &, const Kernel &kernel, llvm::StringRef) override {
    loaded.push_back(kernel.name);
    return int(loaded.size()) - 1;
  }
  llvm::Expected<Address> allocate(llvm::StringRef name, int64_t bytes, BufferSpace) override {
    REQUIRE(!memory.count(name.str()));
    return reinterpret_cast<Address>(
        (memory[name.str()] = std::vector<unsigned char>(bytes, 0x11)).data());
  }
  llvm::Expected<Address> place(llvm::StringRef name, WeightPacker packer) override {
    auto address = allocate(name, weightBytes(packer.weight()), BufferSpace::Device);
    packer.pack(0, at(name.str()));
    return address;
  }
  llvm::Error write(Address to, const void *from, int64_t bytes) override {
    std::memcpy(reinterpret_cast<void *>(to), from, bytes);
    return llvm::Error::success();
  }
  llvm::Error read(void *to, Address from, int64_t bytes) override {
    std::memcpy(to, reinterpret_cast<void *>(from), bytes);
    return llvm::Error::success();
  }
  llvm::Error fill(Address to, uint32_t word, int64_t bytes) override {
    for (int64_t i = 0; i < bytes; i += 4)
      std::memcpy(reinterpret_cast<unsigned char *>(to) + i, &word, 4);
    return llvm::Error::success();
  }
  llvm::Error run(std::span<const PreparedLaunch> launches, Chaining) override {
    runs.emplace_back(launches.begin(), launches.end());
    bases.push_back(launches[0].args.step->launch_base);
    return fail ? fail(fault.record) : llvm::Error::success();
  }
  FaultTable *faultAddress() override { return &fault.table; }
  std::vector<FaultRecord> faults() override { return writtenRecords(&fault.table); }
  bool losesContext() const override { return true; }
};

OpenTensor zeros() {
  return [](const std::string &, const std::vector<int64_t> &, bool) -> llvm::Expected<TensorRow> {
    return TensorRow([](int64_t, std::span<uint16_t> out) { std::ranges::fill(out, uint16_t(0)); });
  };
}

std::unique_ptr<Executor> make(RecordingBackend &backend, ExecuteOptions options = {}) {
  auto executor = Executor::create(tinyPlan(), "out", backend, zeros(), options);
  REQUIRE(bool(executor));
  return std::move(*executor);
}

uint32_t word(const unsigned char *bytes) {
  uint32_t value;
  std::memcpy(&value, bytes, 4);
  return value;
}

const std::vector<StepSequence> kStep = {{.start = 0, .tokens = {1}, .pages = {2}}};

} // namespace

TEST_CASE("buffers come in their sizes and start as the plan says") {
  RecordingBackend backend;
  make(backend, {.poolPages = 5, .optionalBuffers = {"resid_tap"}});
  CHECK(backend.loaded == std::vector<std::string>{"layer"});
  CHECK(backend.memory.at("resid").size() == 3 * 512);
  CHECK(backend.memory.at("kv[0]").size() == size_t(5 * KvLayout{1, 16}.pageBytes()));
  CHECK(backend.memory.count("kv[1]"));
  CHECK(backend.memory.count("qkv[1]"));
  CHECK(backend.memory.count("inv_freq"));
  CHECK(backend.memory.count("resid_tap[1]"));
  CHECK(word(backend.at("resid") + 3 * 512 - 4) == kEmptyWord);
  CHECK(word(backend.at("partials")) == 0);
  CHECK(word(backend.at("kv[1]")) == kPoisonWord);
}

TEST_CASE("launches get their layer's memory; optional slots are null unless asked for") {
  RecordingBackend backend;
  auto executor = make(backend, {.launchBase = 40});
  REQUIRE(!executor->setStep(kStep));
  REQUIRE(!executor->runStep());
  REQUIRE(backend.runs.size() == 1);
  REQUIRE(backend.runs[0].size() == 2);
  const LaunchArgs &args = backend.runs[0][1].args;
  CHECK(args.layer == 1);
  CHECK(args.launch_in_step == 1);
  CHECK(args.step->live_rows == 1);
  CHECK(args.page_table[0] == 2);
  CHECK(args.buffer[0] == backend.at("resid"));
  CHECK(args.buffer[1] == backend.at("qkv[1]"));
  CHECK(args.buffer[2] == backend.at("kv[1]"));
  CHECK(args.buffer[3] == backend.at("inv_freq"));
  CHECK(args.buffer[5] == nullptr);
  CHECK(args.fault == &backend.fault.table);
  // The counter moves by a step's launches.
  CHECK(backend.bases == std::vector<uint64_t>{40});
  CHECK(executor->launchBase() == 42);
  REQUIRE(!executor->setStep(kStep));
  REQUIRE(!executor->runStep());
  CHECK(backend.bases == std::vector<uint64_t>{40, 42});
}

TEST_CASE("a single launch needs only its own layer") {
  RecordingBackend backend;
  auto executor = make(backend, {.firstLaunch = 1, .launchCount = 1});
  CHECK(!backend.memory.count("qkv[0]"));
  CHECK(backend.memory.count("qkv[1]"));
  REQUIRE(!executor->setStep(kStep));
  CHECK_THAT(llvm::toString(executor->runLaunches(0, 2)),
             Contains("launches [0, 2) are not set up, [1, 2) are"));
  REQUIRE(!executor->runLaunches(1, 1));
  CHECK(executor->launchBase() == 0);
  CHECK(executor->launchNumber(1) == 1);
}

TEST_CASE("sets and KV can be written and read back") {
  RecordingBackend backend;
  auto executor = make(backend);
  const std::vector<unsigned char> words(512, 0x42);
  REQUIRE(!executor->writeBuffer("resid", words, 0, 2));
  CHECK(backend.at("resid")[2 * 512] == 0x42);
  CHECK(backend.at("resid")[2 * 512 - 1] == 0xFF);
  auto bytes = executor->readBuffer("resid", 0, 2);
  REQUIRE(bool(bytes));
  CHECK(*bytes == words);
  REQUIRE(!executor->resetBuffer("resid"));
  CHECK(word(backend.at("resid") + 2 * 512) == kEmptyWord);

  std::vector<uint16_t> key(16, 3), value(16, 4), k(16), v(16);
  const std::vector<int32_t> pages = {7, 9};
  REQUIRE(!executor->writeKv(1, pages, 70, key, value));
  REQUIRE(!executor->readKv(1, pages, 70, k, v));
  CHECK(k == key);
  CHECK(v == value);
  const KvLayout layout{1, 16};
  CHECK(backend.at("kv[1]")[9 * layout.pageBytes() + layout.keyOffset(6, 0, 0)] == 3);

  CHECK_THAT(llvm::toString(executor->writeBuffer("nothing", words)), Contains("no buffer"));
  CHECK_THAT(llvm::toString(executor->writeBuffer("resid", words, 0, 3)), Contains("set 3 of 3"));
  CHECK_THAT(llvm::toString(executor->readBuffer("resid_tap").takeError()),
             Contains("is not set up"));
}

TEST_CASE("vectors are read back as they were packed") {
  RecordingBackend backend;
  auto executor = make(backend);
  auto bytes = executor->readVector("norm", 1);
  REQUIRE(bool(bytes));
  CHECK(bytes->size() == 256);
  CHECK((*bytes)[0] + 256 * (*bytes)[1] == 0x3F80); // 1 and nothing
  CHECK_THAT(llvm::toString(executor->readVector("qkv", 1).takeError()),
             Contains("no vector 'qkv'"));
  CHECK_THAT(llvm::toString(executor->readVector("nothing").takeError()), Contains("no vector"));
  CHECK_THAT(llvm::toString(executor->readVector("norm", 7).takeError()),
             Contains("is not set up"));
}

TEST_CASE("a deadline names the edge, and the context is not used again") {
  RecordingBackend backend;
  auto executor = make(backend, {.launchBase = 10});
  REQUIRE(!executor->setStep(kStep));
  backend.fail = [](FaultRecord &record) {
    record = {.valid = 1, .edge = 1, .sm = 3, .warp = 1, .launch = 11, .expected = 128, .seen = 97};
    return llvm::createStringError(llvm::inconvertibleErrorCode(), "the kernel trapped");
  };
  const std::string text = llvm::toString(executor->runStep());
  CHECK_THAT(text, Contains("launch 11 (kernel layer, layer 1)") && Contains("SM 3, warp 1") &&
                       Contains("2000 ms") &&
                       Contains("edge 1 'resid_words' (epilogue -> poller)") &&
                       Contains("expected 128, saw 97") && Contains("the kernel trapped"));
  CHECK_THAT(llvm::toString(executor->runStep()), Contains("lost by an earlier fault"));
}

TEST_CASE("an error without a fault record is passed on") {
  RecordingBackend backend;
  auto executor = make(backend);
  REQUIRE(!executor->setStep(kStep));
  backend.fail = [](FaultRecord &) {
    return llvm::createStringError(llvm::inconvertibleErrorCode(), "bus fell off");
  };
  CHECK(llvm::toString(executor->runStep()) == "bus fell off");
}

TEST_CASE("what cannot be run is refused") {
  RecordingBackend backend;
  auto refusal = [&](ExecuteOptions options) {
    auto executor = Executor::create(tinyPlan(), "out", backend, zeros(), options);
    REQUIRE(!executor);
    return llvm::toString(executor.takeError());
  };
  CHECK_THAT(refusal({.firstLaunch = 2}), Contains("launches [2, 2) were asked for"));
  CHECK_THAT(refusal({.firstLaunch = 1, .launchCount = 2}), Contains("the plan has 2"));
  CHECK_THAT(refusal({.maxPages = 0}), Contains("0 pages"));
  CHECK_THAT(refusal({.optionalBuffers = {"x"}}), Contains("no buffer 'x'"));
  auto executor = make(backend);
  CHECK_THAT(llvm::toString(executor->runStep()), Contains("setStep"));
  CHECK_THAT(llvm::toString(executor->setStep(
                 std::vector<StepSequence>{{.start = 64, .tokens = {1}, .pages = {2}}})),
             Contains("expected 2 pages for its 65 positions but its table has 1"));
}
