//===- Export.cpp - Traces as files -----------------------------------------===//

#include "tools/trace/Export.h"

#include "tools/trace/Path.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <cmath>
#include <span>

using namespace megalith::runtime;

namespace megalith::trace {

namespace {

std::span<const LaunchTrace> middle(const Trace &trace, int64_t count) {
  const std::span all(trace.launches);
  const size_t kept = std::min(all.size(), size_t(std::max<int64_t>(count, 0)));
  return all.subspan((all.size() - kept) / 2, kept);
}

const Kernel &kernelOf(const Plan &plan, const LaunchTrace &launch) {
  return *plan.kernel(plan.launches[size_t(launch.launch)].kernel);
}

/// A tenth of a nanosecond is more than the clock tells.
double rounded(double ns) {
  return std::round(ns * 10) / 10;
}

class Writer {
public:
  explicit Writer(std::string &text) : stream(text), os(stream) {}

  void spread(llvm::StringRef key, const Spread &spread) {
    if (!spread.count)
      return;
    os.attributeObject(key, [&] {
      os.attribute("count", spread.count);
      os.attribute("p10", rounded(spread.p10));
      os.attribute("median", rounded(spread.median));
      os.attribute("p90", rounded(spread.p90));
    });
  }

  void summary(const Summary &summary) {
    os.attributeArray("kernels", [&] {
      for (const KernelSummary &kernel : summary.kernels)
        os.object([&] { this->kernel(kernel); });
    });
  }

  void path(const CriticalPath &path) {
    os.attribute("begin", rounded(path.begin()));
    os.attribute("end", rounded(path.end()));
    os.attribute("launches", path.launches);
    os.attributeArray("segments", [&] {
      for (const Segment &segment : path.segments)
        os.object([&] {
          os.attribute("launch", int64_t(segment.launch));
          os.attribute("kernel", segment.kernel);
          os.attribute("sm", segment.sm);
          os.attribute("stage", segment.stage);
          os.attribute("kind", str(segment.kind));
          if (!segment.edge.empty())
            os.attribute("edge", segment.edge);
          os.attribute("begin", rounded(segment.begin));
          os.attribute("end", rounded(segment.end));
        });
    });
    os.attributeArray("totals", [&] {
      for (const PathTotal &total : path.totals)
        os.object([&] {
          os.attribute("stage", total.stage);
          os.attribute("kind", str(total.kind));
          if (!total.edge.empty())
            os.attribute("edge", total.edge);
          os.attribute("ns", rounded(total.ns));
        });
    });
  }

  void launch(const Plan &plan, const LaunchTrace &launch) {
    os.attribute("launch", launch.launch);
    os.attribute("number", int64_t(launch.number));
    os.attribute("kernel", kernelOf(plan, launch).name);
    os.attribute("layer", plan.launches[size_t(launch.launch)].layer);
    os.attribute("clocks_per_ns", launch.clocksPerNs);
    os.attributeArray("warps", [&] {
      for (const WarpTrace &warp : launch.warps)
        os.object([&] { this->warp(warp); });
    });
  }

  llvm::raw_string_ostream stream;
  llvm::json::OStream os;

private:
  void kernel(const KernelSummary &kernel) {
    os.attribute("kernel", kernel.kernel);
    os.attribute("launches", kernel.launches);
    spread("period", kernel.period);
    spread("exchange", kernel.exchange);
    spread("chain", kernel.chain);
    spread("restart", kernel.restart);
    os.attributeArray("stages", [&] {
      for (const RoleStage &role : kernel.roles)
        os.object([&] { roleStage(role); });
    });
    os.attributeArray("hops", [&] {
      for (const HopTimes &hop : kernel.hops)
        os.object([&] {
          os.attribute("edge", hop.hop.edge);
          os.attribute("from", hop.hop.from);
          os.attribute("to", hop.hop.to);
          os.attribute("previous", hop.hop.previous);
          os.attribute("pieces", hop.hop.pieces);
          spread("all", hop.all);
          spread("words", hop.words);
        });
    });
  }

  void roleStage(const RoleStage &role) {
    os.attribute("role", role.role);
    os.attribute("stage", role.stage);
    os.attributeArray("waits", [&] {
      for (const std::string &edge : role.waits)
        os.value(edge);
    });
    spread("begin", role.begin);
    if (role.ready)
      spread("ready", *role.ready);
    if (role.first)
      spread("first", *role.first);
    if (role.last)
      spread("last", *role.last);
    spread("end", role.end);
    os.attribute("length", rounded(role.length));
    os.attribute("waited", rounded(role.waited));
    os.attribute("stalled", rounded(role.stalled));
  }

  void warp(const WarpTrace &warp) {
    os.attribute("sm", warp.sm);
    os.attribute("warp", warp.warp);
    os.attribute("begin", rounded(warp.begin));
    os.attribute("end", rounded(warp.end));
    os.attributeArray("stages", [&] {
      for (const WarpStage &stage : warp.stages)
        os.array([&] {
          os.value(stage.stage);
          for (double time : {stage.begin, stage.end, stage.waited, stage.stalled})
            os.value(rounded(time));
          for (const std::optional<double> &time : {stage.ready, stage.first, stage.last})
            if (time)
              os.value(rounded(*time));
            else
              os.value(nullptr);
        });
    });
  }
};

/// One bar.
void bar(llvm::json::OStream &os, llvm::StringRef name, llvm::StringRef category, int64_t sm,
         int64_t warp, double begin, double end) {
  os.object([&] {
    os.attribute("name", name);
    os.attribute("cat", category);
    os.attribute("ph", "X");
    os.attribute("pid", sm);
    os.attribute("tid", warp);
    os.attribute("ts", begin / 1000);
    os.attribute("dur", (end - begin) / 1000);
  });
}

void label(llvm::json::OStream &os, llvm::StringRef what, llvm::StringRef text, int64_t sm,
           int64_t warp) {
  os.object([&] {
    os.attribute("name", what);
    os.attribute("ph", "M");
    os.attribute("pid", sm);
    os.attribute("tid", warp);
    os.attributeObject("args", [&] { os.attribute("name", text); });
  });
}

std::string threadName(int64_t warp) {
  std::string name = roleOfWarp(warp).str();
  return name == "consumer" ? name + " " + std::to_string(warp - 2) : name;
}

} // namespace

std::string toJson(const Plan &plan, const Trace &trace, const Summary &summary, Source source,
                   int64_t launches) {
  std::string text;
  {
    Writer writer(text);
    llvm::json::OStream &os = writer.os;
    os.object([&] {
      os.attribute("format", "megalith-trace");
      os.attribute("version", kTraceJsonVersion);
      os.attribute("source", source == Source::Measured ? "measured" : "predicted");
      os.attribute("model", plan.model);
      os.attribute("target", plan.target);
      os.attribute("sms", plan.sms);
      os.attribute("rows", plan.rows);
      os.attribute("timer_step", trace.timerStep);
      os.attribute("alignment_error", rounded(trace.alignmentError));
      os.attribute("largest_alignment_error", rounded(trace.largestError));
      os.attributeObject("names", [&] {
        for (const Kernel &kernel : plan.kernels)
          os.attributeObject(kernel.name, [&] {
            os.attributeArray("stages", [&] {
              if (kernel.trace)
                for (const TraceStage &stage : kernel.trace->stages)
                  os.value(stage.name);
            });
          });
      });
      os.attributeObject("summary", [&] { writer.summary(summary); });
      if (const auto path = criticalPath(plan, trace))
        os.attributeObject("path", [&] { writer.path(*path); });
      os.attributeArray("launches", [&] {
        for (const LaunchTrace &launch : middle(trace, launches))
          os.object([&] { writer.launch(plan, launch); });
      });
    });
  }
  return text + "\n";
}

std::string toPerfetto(const Plan &plan, const Trace &trace, int64_t launches) {
  std::string text;
  {
    llvm::raw_string_ostream stream(text);
    llvm::json::OStream os(stream);
    os.object([&] {
      os.attribute("displayTimeUnit", "ns");
      os.attributeArray("traceEvents", [&] {
        const auto shown = middle(trace, launches);
        if (!shown.empty())
          for (const WarpTrace &warp : shown.front().warps) {
            label(os, "process_name", "SM " + std::to_string(warp.sm), warp.sm, warp.warp);
            label(os, "thread_name", threadName(warp.warp), warp.sm, warp.warp);
          }
        for (const LaunchTrace &launch : shown) {
          const Kernel &kernel = kernelOf(plan, launch);
          for (const WarpTrace &warp : launch.warps) {
            for (const WarpStage &stage : warp.stages) {
              const TraceStage &known = kernel.trace->stages[size_t(stage.stage)];
              bar(os, known.name, "stage", warp.sm, warp.warp, stage.begin, stage.end);
              // Of several waits only the last one's end is known.
              if (stage.ready && stage.waited > 0)
                bar(os, llvm::join(known.role(roleOfWarp(warp.warp))->waits, ", "), "wait", warp.sm,
                    warp.warp, std::max(stage.begin, *stage.ready - stage.waited), *stage.ready);
            }
          }
        }
      });
    });
  }
  return text + "\n";
}

} // namespace megalith::trace
