// Runs small kernels on the machine and looks for what some seed does.
#pragma once

#include "runtime/host/machine.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace megalith::test {

/// One machine with one 64 KB buffer "data" (zeroed before each run) in args.buffer[0].
class Harness {
public:
  Harness(int sms, int chaos = 1) : machine(options(sms, chaos)), data(16384) {
    machine.registerBuffer(data.data(), data.size() * 4, "data");
  }

  /// Runs `launches` launches of a kernel (args.layer = launches) and returns the error, or "".
  std::string run(const host::KernelRecord &kernel, uint64_t seed, int launches = 1) {
    std::fill(data.begin(), data.end(), 0);
    fault = {};
    std::vector<host::Launch> list;
    for (int i = 0; i < launches; ++i) {
      LaunchArgs args = {};
      args.layer = launches;
      args.launch_in_step = static_cast<uint32_t>(i);
      args.deadline_ns = 2'000'000'000;
      args.fault = &fault.table;
      args.buffer[0] = data.data();
      args.buffer[1] = extra;
      list.push_back({&kernel, args});
    }
    machine.reseed(seed);
    llvm::Expected<host::RunReport> result = machine.run(list);
    if (!result)
      return llvm::toString(result.takeError());
    report = *result;
    return "";
  }

  /// How many of `seeds` seeds end with `holds` true; errors throw.
  int count(const host::KernelRecord &kernel, int seeds, const std::function<bool()> &holds,
            int launches = 1) {
    int n = 0;
    for (int seed = 1; seed <= seeds; ++seed) {
      std::string error = run(kernel, static_cast<uint64_t>(seed), launches);
      if (!error.empty())
        throw std::runtime_error(error);
      n += holds();
    }
    return n;
  }

  static host::Options options(int sms, int chaos) {
    host::Options o;
    o.sms = sms;
    o.chaos = chaos;
    o.smem_bytes = 16384;
    return o;
  }

  host::Machine machine;
  std::vector<uint32_t> data;
  void *extra = nullptr;
  OneFault fault;
  host::RunReport report;
};

} // namespace megalith::test
