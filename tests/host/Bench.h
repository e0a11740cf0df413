//===- Bench.h - A small model on the host platform --------------*- C++ -*-===//
#ifndef MEGALITH_TESTS_HOST_BENCH_H
#define MEGALITH_TESTS_HOST_BENCH_H

#include "runtime/host_backend.h"
#include "tools/check/Session.h"
#include "tools/check/Subject.h"

#include <memory>
#include <string>

namespace megalith::test {

/// How several ranks divide experts and the matrix behind attention: words of task-split-ranks.
struct RankScheme {
  std::string experts = "auto", output = "auto", sums = "f32";
};

/// A config compiled for a rows bucket and set up on the host platform. Aborts the test if that
/// fails.
struct Bench {
  /// `config`: a file of models/configs. Session options as they are, but for the layer's launch
  /// alone if `layer` is given.
  Bench(const std::string &config, int64_t rows, int64_t sms,
        const check::SessionOptions &options = {},
        runtime::LaunchMode launch = runtime::LaunchMode::Fused, int64_t tp = 1,
        const models::Quantization &quantization = {}, const RankScheme &scheme = {});
  ~Bench();

  /// Launch by launch against the reference, under the seed given.
  check::Report compare(const check::Workload &workload, uint64_t seed,
                        check::Outcome *outcome = nullptr);
  /// In one go a step. An error of the machine (a deadlock, a fault) fails the test.
  check::Outcome run(const check::Workload &workload, uint64_t seed, uint64_t launchBase = 0);

  std::unique_ptr<check::Subject> subject;
  std::unique_ptr<runtime::HostBackend> backend;
  std::unique_ptr<check::Session> session;
  std::string folder; ///< temporary
};

/// A folder with the device headers for the host's compiler.
std::string deviceHeaderFolder();

/// The text of a file of the source tree.
std::string readSource(const std::string &path);

} // namespace megalith::test

#endif // MEGALITH_TESTS_HOST_BENCH_H
