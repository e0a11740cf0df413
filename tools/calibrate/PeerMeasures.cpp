//===- PeerMeasures.cpp - Two GPUs that store into each other's memory ----===//
//
// A session and a thread for each GPU, the same kernel at once on both
// (tests/gpu/calibrate/peer.cuh).
//
//===----------------------------------------------------------------------===//

#include "tools/calibrate/Measures.h"

#include "runtime/error.h"

#include "llvm/Support/FormatVariadic.h"

#include <array>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

using llvm::Error;
using llvm::Expected;
using llvm::formatv;

namespace megalith::calibrate {

namespace {

/// One of the two kernels: what it measures, by how many rounds.
struct PeerRun {
  std::string name, how;
  const char *kernel;
  Job job;
  double ways; ///< of a word in one round
};

std::vector<PeerRun> peerRuns(uint32_t sms) {
  std::vector<PeerRun> runs = {{"nvlink.one_way",
                                "one word to the other GPU and one back, half of it",
                                "calibrate_peer_pair",
                                {.sms = 1, .rounds = 2000, .warmup = 200},
                                2}};
  for (uint32_t kilobytes : {4, 16, 64})
    for (bool alone : {false, true})
      runs.push_back(
          {formatv("nvlink.{0}.{1}k", alone ? "local" : "hop", kilobytes),
           formatv("all {0} SMs {1} and all see {2} KB in their own GPU's memory: one hop", sms,
                   alone ? "publish" : "of both GPUs publish to both", kilobytes),
           "calibrate_peer_hops",
           {.sms = sms, .rounds = 200, .warmup = 20, .stride = 1024 * kilobytes, .variant = alone},
           1});
  return runs;
}

/// Where two threads wait for each other. One that ends releases the other for good.
class Meeting {
public:
  void meet() {
    std::unique_lock lock(mutex);
    const uint64_t round = arrivals++ / 2;
    changed.notify_all();
    changed.wait_for(lock, std::chrono::seconds(20),
                     [&] { return ended || arrivals >= 2 * (round + 1); });
  }
  void end() {
    std::lock_guard lock(mutex);
    ended = true;
    changed.notify_all();
  }

private:
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t arrivals = 0;
  bool ended = false;
};

/// What one of the two threads shares with the other.
struct Side {
  runtime::Driver::Address words = 0;
  std::vector<std::vector<double>> values; ///< of each run, time after time
  std::string error;
};

Error measureSide(int which, std::array<int, 2> ordinals, llvm::StringRef target,
                  std::array<Side, 2> &sides, Meeting &meeting) {
  auto session = Session::create(ordinals[which], target, [](llvm::StringRef) {});
  if (!session)
    return session.takeError();
  Side &own = sides[which];
  own.words = (*session)->wordsAddress();
  meeting.meet();
  if (!sides[1 - which].words)
    return runtime::problem("the other GPU's session did not start");
  if (Error error =
          (*session)->join(ordinals[1 - which], sides[1 - which].words, [&] { meeting.meet(); }))
    return error;
  for (PeerRun &run : peerRuns(uint32_t((*session)->device().sms))) {
    run.job.walk = uint32_t(which);
    own.values.emplace_back();
    for (int time = -1; time < 7; ++time) {
      auto samples = (*session)->run(run.kernel, run.job);
      if (!samples)
        return samples.takeError();
      if (time >= 0)
        own.values.back().push_back(span(*samples) / (run.ways * run.job.rounds));
    }
  }
  meeting.meet(); // nobody's memory goes while the other's kernels may store to it
  return Error::success();
}

} // namespace

std::vector<std::string> peerCosts() {
  std::vector<std::string> names;
  for (const PeerRun &run : peerRuns(1))
    names.push_back(run.name);
  return names;
}

Expected<std::vector<PeerCost>> measurePeers(int first, int second, llvm::StringRef target) {
  std::array<Side, 2> sides;
  Meeting meeting;
  std::vector<std::thread> threads;
  for (int which : {0, 1})
    threads.emplace_back([&, which] {
      if (Error error = measureSide(which, {first, second}, target, sides, meeting))
        sides[which].error = llvm::toString(std::move(error));
      meeting.end();
    });
  for (std::thread &thread : threads)
    thread.join();
  for (const Side &side : sides)
    if (!side.error.empty())
      return runtime::problem("{0}", side.error);
  std::vector<PeerCost> costs;
  const auto runs = peerRuns(1);
  for (size_t i = 0; i < runs.size(); ++i)
    costs.push_back({runs[i].name, runs[i].how, sides[0].values[i]});
  return costs;
}

} // namespace megalith::calibrate
