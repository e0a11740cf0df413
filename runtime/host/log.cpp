// The log of a run as text.
#include "runtime/host/log.h"

#include <algorithm>

namespace megalith::host {

void Ranges::add(uint64_t begin, uint64_t end) {
  auto it = ranges.upper_bound(begin);
  if (it != ranges.begin() && std::prev(it)->second >= begin)
    --it;
  while (it != ranges.end() && it->first <= end) {
    begin = std::min(begin, it->first);
    end = std::max(end, it->second);
    it = ranges.erase(it);
  }
  ranges[begin] = end;
}

bool Log::enter(Warp &warp, int lane, const std::string &text) {
  uint32_t &at = warp.at[static_cast<size_t>(lane)];
  if (++at == warp.steps.size())
    warp.steps.push_back({text, {}, {}});
  return warp.steps[at].text == text;
}

bool Log::mark(int launch, int sm, int warp, int lane, const std::string &text) {
  return enter(warpOf(launch, sm, warp), lane, text.empty() ? "between" : text);
}

bool Log::step(int launch, int sm, int warp, int lane, const std::string &text) {
  Warp &w = warpOf(launch, sm, warp);
  if (w.steps[w.at[static_cast<size_t>(lane)]].text != "between")
    return true;
  return enter(w, lane, text) && enter(w, lane, "between");
}

void Log::line(int launch, int sm, int warp, int lane, const std::string &text) {
  Warp &w = warpOf(launch, sm, warp);
  auto &lines = w.steps[w.at[static_cast<size_t>(lane)]].lines;
  if (std::find(lines.begin(), lines.end(), text) == lines.end())
    lines.push_back(text);
}

void Log::access(int launch, int sm, int warp, int lane, const std::string &what, uint64_t begin,
                 uint64_t end) {
  Warp &w = warpOf(launch, sm, warp);
  w.steps[w.at[static_cast<size_t>(lane)]].accesses[what].add(begin, end);
}

std::string Log::text(int launch) const {
  std::string text;
  for (auto it = warps.lower_bound({launch, 0, 0}); it != warps.end() && it->first[0] == launch;
       ++it)
    for (const Step &step : it->second.steps) {
      text += std::to_string(it->first[1]) + " " + std::to_string(it->first[2]) + " " + step.text +
              "\n";
      for (const std::string &line : step.lines)
        text += "  " + line + "\n";
      for (const auto &[what, ranges] : step.accesses) {
        // "load resid relaxed": the order comes behind the range.
        const size_t second = what.find(' '), third = what.find(' ', second + 1);
        for (auto [begin, end] : ranges.all())
          text += "  " + what.substr(0, third) + " " + std::to_string(begin) + " " +
                  std::to_string(end) + (third == std::string::npos ? "" : what.substr(third)) +
                  "\n";
      }
    }
  return text;
}

} // namespace megalith::host
