//===- Simulate.cpp - What a plan's launches will take --------------------===//

#include "passes/simulate/Simulate.h"

#include "passes/simulate/Engine.h"

#include "llvm/Support/FormatVariadic.h"

#include <map>
#include <memory>

using megalith::task::KernelOp;

namespace megalith::simulate {

/// What the engine cannot play.
static llvm::Error check(llvm::ArrayRef<KernelOp> launches) {
  KernelOp first = launches.front();
  for (KernelOp kernel : launches) {
    const llvm::StringRef name = kernel.getSymName();
    if (!kernel.isAtRoleLevel())
      return llvm::createStringError(
          llvm::formatv("kernel @{0}: expected role regions but its stages hold none; give the IR "
                        "after task-lower-to-roles",
                        name)
              .str());
    if (kernel.isLooping() && launches.size() > 1)
      return llvm::createStringError(
          llvm::formatv("kernel @{0} loops over a step's launches: expected it alone but got {1} "
                        "kernels",
                        name, launches.size())
              .str());
    if (kernel.getSms() != first.getSms() || kernel.getRows() != first.getRows())
      return llvm::createStringError(
          llvm::formatv("kernel @{0} has {1} SMs and {2} rows but @{3} has {4} and {5}: expected "
                        "kernels of one plan",
                        name, kernel.getSms(), kernel.getRows(), first.getSymName(), first.getSms(),
                        first.getRows())
              .str());
  }
  constexpr int64_t kMostSms = 4096, kMostLaunches = 255; // what a copy's token has room for
  if (int64_t(first.getSms()) > kMostSms || int64_t(launches.size()) > kMostLaunches)
    return llvm::createStringError(
        llvm::formatv("expected at most {0} SMs and {1} launches but got {2} and {3}", kMostSms,
                      kMostLaunches, first.getSms(), launches.size())
            .str());
  return llvm::Error::success();
}

double stepTime(llvm::ArrayRef<LaunchTimes> played, int64_t launches) {
  double time = played.empty() ? 0 : played.back().end;
  for (size_t i = 1; i < played.size(); ++i) {
    const int64_t next = i + 1 < played.size() ? played[i + 1].number : launches;
    time += double(next - played[i].number - 1) * (played[i].begin - played[i - 1].begin);
  }
  return time;
}

llvm::Expected<Timeline> simulate(llvm::ArrayRef<KernelOp> launches, const Costs &costs,
                                  const StepShape &shape, Heat heat) {
  if (launches.empty())
    return llvm::createStringError("expected launches to simulate but got none");
  if (llvm::Error error = check(launches))
    return error;
  struct Compiled {
    verify::Program program;
    Prices prices;
    Compiled(KernelOp kernel, const Costs &costs, Heat heat)
        : program(kernel), prices(program, costs, heat) {}
  };
  std::map<mlir::Operation *, std::unique_ptr<Compiled>> compiled;
  KernelOp first = launches.front();
  if (first.getRanks() > 1 && !shape.hopNs && costs.hop.isEmpty())
    return llvm::createStringError(
        llvm::formatv(
            "kernel @{0} is of {1} ranks, but the costs lack what a hop between GPUs takes "
            "(nvlink.hop.*); calibrate where there are two, or give --hop-ns",
            first.getSymName(), first.getRanks())
            .str());
  Engine engine(costs, int64_t(first.getSms()), shape.hopNs);
  for (auto [number, kernel] : llvm::enumerate(launches)) {
    std::unique_ptr<Compiled> &one = compiled[kernel];
    if (!one)
      one = std::make_unique<Compiled>(kernel, costs, heat);
    std::vector<Facts> facts;
    for (int64_t turn : one->program.launches) {
      llvm::Expected<Facts> of =
          factsOf(kernel, shape, one->program.isLooping ? uint64_t(turn) : number);
      if (!of)
        return of.takeError();
      facts.push_back(std::move(*of));
    }
    engine.add(one->program, one->prices, std::move(facts));
  }
  return engine.run();
}

} // namespace megalith::simulate
