//===- Session.h - Calibration kernels on a GPU ------------------*- C++ -*-===//
#ifndef MEGALITH_TOOLS_CALIBRATE_SESSION_H
#define MEGALITH_TOOLS_CALIBRATE_SESSION_H

#include "runtime/abi.h"
#include "runtime/driver.h"
#include "runtime/nvrtc.h"
#include "tests/gpu/calibrate/job.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace megalith::calibrate {

/// Include name -> text of the calibration kernels and what they include.
const std::map<llvm::StringRef, llvm::StringRef> &kernelSources();

using Progress = std::function<void(llvm::StringRef line)>;

/// How a kernel is launched: one launch, or a chain of them in one stream.
struct Chain {
  int launches = 1;
  bool programmatic = false; ///< each may start while the one before it ends
  bool graph = false;        ///< replayed from a CUDA graph
};

/// One GPU with all kernels loaded and their buffers filled. A fault loses the context: `lost` then
/// says so, and every later run fails with that message.
class Session {
public:
  /// Opens GPU `ordinal`, compiles for `target` and fills the data. Fails with the words of the
  /// driver or of NVRTC.
  static llvm::Expected<std::unique_ptr<Session>> create(int ordinal, llvm::StringRef target,
                                                         const Progress &progress);
  ~Session();
  Session(const Session &) = delete;

  const runtime::DeviceInfo &device() const { return driver->info(); }
  llvm::StringRef nvrtcVersion() const { return nvrtc; }
  int64_t dataBytes() const { return bytes; }
  bool lost() const { return contextLost; }

  /// Runs `kernel` on fresh words, counters and samples; the samples of the job's SMs (where a
  /// kernel keeps them apart, launch after launch). An error if
  /// any word was wrong or a wait missed its deadline. job.pieces is filled in if it is 0.
  llvm::Expected<std::vector<Sample>> run(llvm::StringRef kernel, Job job, Chain chain = {});
  /// Another session of this process, on GPU `ordinal`, whose words this one's kernels reach from
  /// now on; `meet` is called before every launch, when words are empty, and returns once the
  /// other has called it too.
  llvm::Error join(int ordinal, runtime::Driver::Address words, std::function<void()> meet);
  runtime::Driver::Address wordsAddress() const { return words; }
  /// Microseconds that the last run's launches took together, by events around them.
  double lastMicroseconds() const { return microseconds; }

private:
  explicit Session(std::unique_ptr<runtime::Driver> driver) : driver(std::move(driver)) {}
  llvm::Error load(const runtime::Nvrtc &nvrtc, llvm::StringRef target);
  llvm::Error allocate();
  llvm::Expected<runtime::Driver::Function> find(llvm::StringRef kernel);
  llvm::Error launchAll(runtime::Driver::Function function, const Job &job, Chain chain);
  llvm::Error fault(llvm::StringRef kernel, llvm::Error error);

  std::unique_ptr<runtime::Driver> driver;
  std::string nvrtc;
  std::vector<runtime::Driver::Module> modules;
  std::map<std::string, runtime::Driver::Function> functions;
  std::vector<runtime::Driver::Address> allocations;
  runtime::Driver::Address step = 0, jobs = 0, samples = 0, data = 0, words = 0, counters = 0,
                           peerWords = 0;
  std::function<void()> meet;
  OneFault *left = nullptr; ///< by a wait past its deadline; pinned
  runtime::Driver::Address faultOnDevice = 0;
  runtime::Driver::Event from = nullptr, to = nullptr;
  int64_t bytes = 0;
  double microseconds = 0;
  uint32_t runs = 0;
  bool contextLost = false;
};

} // namespace megalith::calibrate

#endif // MEGALITH_TOOLS_CALIBRATE_SESSION_H
