// What the threads of a run did, warp by warp, for conformance: marks in their order and, between
// them, barriers, copies and ranges of memory. Filled by kernels compiled with MEGALITH_HOST_LOG.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace megalith::host {

/// Sorted ranges of bytes [begin, end), apart from each other.
class Ranges {
public:
  void add(uint64_t begin, uint64_t end);
  const std::map<uint64_t, uint64_t> &all() const { return ranges; }

private:
  std::map<uint64_t, uint64_t> ranges;
};

/// The text, line by line:
///   launch <index> <kernel> <launch number> [of <first> to <end>]
///   <sm> <warp> <mark, or launch_wait, launch_dependents, between>
///     barrier <wait|arrive|expect> <offset in shared memory>
///     copy <buffer> <offset> <bytes> to <offset> barrier <offset>
///     <load|store> <buffer> <begin> <end> <constant|weak|relaxed|acquire|release>
///     shared <read|write> <begin> <end>
/// A looping kernel runs the launches [first, end) of its step, of which the number is the first's.
/// Lines that are set in belong to the step above; ranges are unions over the warp's lanes.
class Log {
public:
  /// Lane `lane` of a warp passes a mark (its text without the slashes), or its end ("").
  /// False: another lane of the warp has passed another mark there.
  bool mark(int launch, int sm, int warp, int lane, const std::string &text);
  /// A step without an end, between marks; inside one nothing.
  bool step(int launch, int sm, int warp, int lane, const std::string &text);
  /// A line of the current step; the same line of several lanes counts once.
  void line(int launch, int sm, int warp, int lane, const std::string &text);
  /// `what` as the lines above: "load resid relaxed", with the range in front of the order.
  void access(int launch, int sm, int warp, int lane, const std::string &what, uint64_t begin,
              uint64_t end);
  /// Of one launch, without its first line.
  std::string text(int launch) const;
  void clear() { warps.clear(); }

private:
  struct Step {
    std::string text;
    std::vector<std::string> lines;
    std::map<std::string, Ranges> accesses;
  };
  struct Warp {
    std::vector<Step> steps{{"between", {}, {}}};
    std::array<uint32_t, 32> at{}; ///< the step that each lane is at
  };
  Warp &warpOf(int launch, int sm, int warp) { return warps[{launch, sm, warp}]; }
  bool enter(Warp &warp, int lane, const std::string &text);

  std::map<std::array<int, 3>, Warp> warps;
};

} // namespace megalith::host
