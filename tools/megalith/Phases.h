//===- Phases.h - how long each piece of work takes -------------------------===//
#ifndef MEGALITH_TOOLS_MEGALITH_PHASES_H
#define MEGALITH_TOOLS_MEGALITH_PHASES_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/FormatVariadic.h"

#include <chrono>
#include <ctime>
#include <string>
#include <vector>

namespace megalith::cli {

/// Wall and CPU time (of all threads) between starts. What came before is "start of the program".
class Phases {
public:
  Phases() : began(now()) { ended.push_back({"start of the program", {0, cpu()}}); }

  void start(llvm::StringRef name) {
    stop();
    current = name.str();
    at = now();
  }

  /// Ends the last phase; a line each, in milliseconds.
  std::string table() {
    stop();
    std::string text = llvm::formatv("{0,-44}{1,10}{2,10}\n", "phase", "wall ms", "CPU ms");
    for (const auto &[name, took] : ended)
      text += llvm::formatv("  {0,-42}{1,10:f1}{2,10:f1}\n", name, took.wall * 1e3, took.cpu * 1e3);
    const Moment end = now();
    return text + llvm::formatv("  {0,-42}{1,10:f1}{2,10:f1}\n", "all",
                                (end.wall - began.wall) * 1e3, end.cpu * 1e3)
                      .str();
  }

private:
  struct Moment {
    double wall, cpu; ///< seconds
  };
  static double cpu() { return double(std::clock()) / CLOCKS_PER_SEC; }
  static Moment now() {
    const auto wall = std::chrono::steady_clock::now().time_since_epoch();
    return {std::chrono::duration<double>(wall).count(), cpu()};
  }
  void stop() {
    const Moment end = now();
    if (!current.empty())
      ended.push_back({current, {end.wall - at.wall, end.cpu - at.cpu}});
    current.clear();
  }

  Moment began, at{};
  std::string current;
  std::vector<std::pair<std::string, Moment>> ended;
};

} // namespace megalith::cli

#endif // MEGALITH_TOOLS_MEGALITH_PHASES_H
