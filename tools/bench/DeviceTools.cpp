//===- DeviceTools.cpp - The benchmark's own kernel -------------------------===//

#include "tools/bench/DeviceTools.h"

#include <algorithm>
#include <utility>

using llvm::Error;
using llvm::Expected;

namespace megalith::bench {

constexpr int64_t kReadSmem = kReadSlots * (kReadChunk + 8);

Expected<std::unique_ptr<DeviceTools>>
DeviceTools::create(runtime::Driver &driver, const runtime::Nvrtc &nvrtc, llvm::StringRef target) {
  auto compiled = nvrtc.compile("#include \"tools/bench/device_tools.cuh\"\n", "device_tools.cu",
                                deviceToolsHeaders(), target);
  if (!compiled)
    return compiled.takeError();
  std::unique_ptr<DeviceTools> tools(new DeviceTools(driver));
  auto module = driver.loadModule(compiled->cubin, "device_tools.cubin", nvrtc.version());
  if (!module)
    return module.takeError();
  tools->module = *module;
  auto read = driver.function(*module, "megalith_read", kReadSmem);
  if (!read)
    return read.takeError();
  tools->readKernel = *read;
  return tools;
}

DeviceTools::~DeviceTools() {
  if (module)
    driver.unloadModule(module);
}

Expected<std::vector<double>> DeviceTools::measureRead(runtime::Driver::Address data, int64_t bytes,
                                                       int runs) {
  const unsigned ctas = unsigned(driver.info().sms);
  ReadJob job = {.data = reinterpret_cast<const unsigned char *>(data),
                 .chunks = uint64_t(bytes / kReadChunk / ctas * ctas),
                 .passes = 4,
                 .deadline_ns = 2'000'000'000};
  const double read = double(job.chunks) * kReadChunk * job.passes;
  std::vector<double> rates;
  for (int run = -2; run < runs; ++run) { // two to warm up
    auto from = Event::create(driver), to = Event::create(driver);
    if (!from || !to)
      return llvm::joinErrors(from.takeError(), to.takeError());
    if (Error error = from->record())
      return error;
    if (Error error = driver.launch(
            readKernel, {.ctas = ctas, .threads = 32, .smemBytes = unsigned(kReadSmem)}, &job))
      return error;
    if (Error error = to->record())
      return error;
    auto microseconds = to->since(*from);
    if (!microseconds)
      return microseconds.takeError();
    if (run >= 0)
      rates.push_back(read / *microseconds * 1e6);
  }
  return rates;
}

Expected<Event> Event::create(runtime::Driver &driver) {
  auto event = driver.createEvent();
  if (!event)
    return event.takeError();
  return Event(driver, *event);
}

Expected<double> Event::since(const Event &from) const {
  auto milliseconds = driver->elapsed(from.event, event);
  if (!milliseconds)
    return milliseconds.takeError();
  return double(*milliseconds) * 1000;
}

} // namespace megalith::bench
