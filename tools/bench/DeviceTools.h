//===- DeviceTools.h - The benchmark's own kernel ----------------*- C++ -*-===//
#ifndef MEGALITH_TOOLS_BENCH_DEVICETOOLS_H
#define MEGALITH_TOOLS_BENCH_DEVICETOOLS_H

#include "runtime/driver.h"
#include "runtime/nvrtc.h"
#include "tools/bench/device_tools.cuh"

#include "llvm/Support/Error.h"

#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace megalith::bench {

/// Include name -> text of device_tools.cuh and what it includes.
const std::map<llvm::StringRef, llvm::StringRef> &deviceToolsHeaders();

class DeviceTools {
public:
  static llvm::Expected<std::unique_ptr<DeviceTools>>
  create(runtime::Driver &driver, const runtime::Nvrtc &nvrtc, llvm::StringRef target);
  ~DeviceTools();
  DeviceTools(const DeviceTools &) = delete;

  /// Bytes per second of `runs` reads of the `bytes` at `data`, several passes each; waits.
  llvm::Expected<std::vector<double>> measureRead(runtime::Driver::Address data, int64_t bytes,
                                                  int runs);

private:
  explicit DeviceTools(runtime::Driver &driver) : driver(driver) {}

  runtime::Driver &driver;
  runtime::Driver::Module module = nullptr;
  runtime::Driver::Function readKernel = nullptr;
};

/// An event that is gone at the end.
class Event {
public:
  static llvm::Expected<Event> create(runtime::Driver &driver);
  Event(Event &&other) : driver(other.driver), event(std::exchange(other.event, nullptr)) {}
  ~Event() {
    if (event)
      driver->destroyEvent(event);
  }
  llvm::Error record() const { return driver->recordEvent(event); }
  /// Microseconds from `from` to this one; waits.
  llvm::Expected<double> since(const Event &from) const;

private:
  Event(runtime::Driver &driver, runtime::Driver::Event event) : driver(&driver), event(event) {}
  runtime::Driver *driver;
  runtime::Driver::Event event;
};

} // namespace megalith::bench

#endif // MEGALITH_TOOLS_BENCH_DEVICETOOLS_H
