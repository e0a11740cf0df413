//===- Bench.cpp - megalith bench -------------------------------------------===//

#include "runtime/cuda_backend.h"
#include "tools/bench/CommandLine.h"
#include "tools/megalith/Commands.h"
#include "tools/megalith/Compilation.h"
#include "tools/megalith/Files.h"
#include "tools/megalith/Quantization.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;

namespace megalith::cli {

/// What to compile: a plan for each bucket and launch mode.
static Expected<std::vector<CompileRequest>> readBuckets(const Arguments &arguments,
                                                         ArrayRef<int64_t> buckets,
                                                         ArrayRef<runtime::LaunchMode> modes,
                                                         int64_t leastContext, int64_t ranks) {
  Expected<StringRef> target = arguments.choice("target", targets());
  if (!target)
    return target.takeError();
  Expected<int64_t> sms = arguments.integer("sms", 1, 1024, defaultSms(*target));
  if (!sms)
    return sms.takeError();
  for (int64_t rows : buckets)
    if (!is_contained(rowsBuckets(), std::to_string(rows)))
      return failure(Exit::CommandLine, "--rows: expected some of {0} but got {1}",
                     join(rowsBuckets(), ", "), rows);
  Expected<ConfigText> config =
      readConfig(arguments.positional(), "a config.json or a folder of plans");
  if (!config)
    return config.takeError();
  auto quantization = readQuantization(*config, arguments);
  if (!quantization)
    return quantization.takeError();
  std::vector<CompileRequest> requests;
  for (int64_t rows : buckets)
    for (runtime::LaunchMode mode : modes)
      requests.push_back({.config = config->text,
                          .source = config->file,
                          .quantization = *quantization,
                          .target = target->str(),
                          .rows = rows,
                          .sms = *sms,
                          .launch = mode,
                          .cache = true,
                          .trace = arguments.has("trace") || arguments.has("perfetto"),
                          .tp = ranks,
                          .leastContext = leastContext});
  return requests;
}

static Error runBench(const Arguments &arguments) {
  auto request = bench::readRequest(arguments);
  if (!request)
    return request.takeError();
  StringRef given = arguments.positional();
  if (sys::fs::is_directory(given) && !isCheckpoint(given)) {
    for (StringRef name : {"target", "sms", "quant", "act", "kv"})
      if (arguments.has(name))
        return failure(Exit::CommandLine,
                       "--{0}: expected with a config only, but got a folder of plans that are "
                       "compiled already; leave it out",
                       name);
    return bench::run(std::move(*request), given);
  }
  auto buckets = readBuckets(arguments, request->rows, request->modes, request->options.positions(),
                             request->ranks);
  if (!buckets)
    return buckets.takeError();
  // No GPU: said before minutes of compiling.
  if (auto driver = runtime::Driver::open(request->options.ordinal); !driver)
    return with(Exit::Run, driver.takeError());
  TemporaryFolder temporary;
  if (Error error = temporary.create())
    return error;
  for (const CompileRequest &bucket : *buckets) {
    auto compilation = Compilation::create(bucket, [&](StringRef work) {
      errs() << "compile, rows " << bucket.rows << ": " << work << "\n";
    });
    if (!compilation)
      return compilation.takeError();
    if (Expected<Artifact> artifact = (*compilation)->write(temporary.path()); !artifact)
      return artifact.takeError();
  }
  SmallString<128> folder(temporary.path());
  sys::path::append(folder, buckets->front().target);
  return bench::run(std::move(*request), folder);
}

const Command kBench = {bench::kSyntax, runBench};

} // namespace megalith::cli
