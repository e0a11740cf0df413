//===- Path.h - What decided how long launches took --------------*- C++ -*-===//
//
// The critical path of a timeline, measured or predicted: from the last product of the last of its
// launches back to that of the first of the same kernel. Where a stage's worker waited for words,
// the path goes on at the SM that stored the last of them; else at the worker's stage before. So
// its segments join end to end, and add up to the time between the two products.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_TOOLS_TRACE_PATH_H
#define MEGALITH_TOOLS_TRACE_PATH_H

#include "runtime/plan.h"
#include "runtime/trace.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace megalith::trace {

enum class SegmentKind {
  Work,     ///< the worker's own
  Wait,     ///< for words of other SMs or a signal of another role, along an edge
  Stream,   ///< for pieces of the ring
  Boundary, ///< between the end of one launch and the begin of the next on an SM
};
/// "work", "wait", "stream", "boundary".
llvm::StringRef str(SegmentKind kind);

/// A stretch of the path, in nanoseconds as all times of a trace.
struct Segment {
  uint64_t launch = 0; ///< number
  std::string kernel;
  int64_t sm = 0, stage = 0;
  SegmentKind kind = SegmentKind::Work;
  std::string edge; ///< of a wait
  double begin = 0, end = 0;
};

/// Segments of one stage, kind and edge, a launch.
struct PathTotal {
  std::string stage;
  SegmentKind kind;
  std::string edge;
  double ns = 0;
};

struct CriticalPath {
  int64_t launches = 0;          ///< from its begin to its end
  std::vector<Segment> segments; ///< in order of time: each begins where the one before ends
  std::vector<PathTotal> totals; ///< largest first

  double begin() const { return segments.front().begin; }
  double end() const { return segments.back().end; }
};

/// Of the longest row of launches of one kernel that follow each other, the kernel that most
/// launches are of; nothing if there are not two, or no stage computed anything, or where the
/// plan's kernel loops over a step's launches: a path goes from launch to launch of the machine.
std::optional<CriticalPath> criticalPath(const runtime::Plan &plan, const runtime::Trace &trace);

/// Its totals as a table, in microseconds.
std::string table(const CriticalPath &path);

} // namespace megalith::trace

#endif // MEGALITH_TOOLS_TRACE_PATH_H
