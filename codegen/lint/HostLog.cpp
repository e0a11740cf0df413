//===- HostLog.cpp - A host run's log, read -------------------------------===//

#include "codegen/lint/HostLog.h"

#include "llvm/Support/FormatVariadic.h"

using namespace megalith;
using namespace megalith::lint;
using llvm::StringRef;

llvm::Expected<std::vector<LoggedLaunch>> lint::readHostLog(StringRef log) {
  std::vector<LoggedLaunch> launches;
  std::vector<LoggedStep> *steps = nullptr;
  int number = 0;
  auto bad = [&](StringRef line) {
    return llvm::createStringError(
        llvm::formatv("line {0}: expected a line of a host log (runtime/host/log.h) but got '{1}'",
                      number, line));
  };
  while (!log.empty()) {
    auto [text, rest] = log.split('\n');
    log = rest;
    ++number;
    if (text.empty())
      continue;
    LogLine line{number, {}};
    text.split(line.words, ' ', -1, false);
    if (text.starts_with("  ")) {
      static const std::map<StringRef, size_t> kWords = {
          {"barrier", 3}, {"copy", 8}, {"load", 5}, {"store", 5}, {"shared", 4}};
      auto known = kWords.find(line.words.empty() ? "" : line.words[0]);
      // An order of system scope is two words.
      const bool isOfSystem = line.words.size() == 6 && line.words[5] == "system";
      if (!steps || steps->empty() || known == kWords.end() ||
          line.words.size() - isOfSystem != known->second)
        return bad(text);
      steps->back().lines.push_back(std::move(line));
      continue;
    }
    const bool isOfSome = line.words.size() == 8 && line.words[4] == "of" && line.words[6] == "to";
    if (line.words[0] == "launch" && (line.words.size() == 4 || isOfSome)) {
      LoggedLaunch &launch = launches.emplace_back(LoggedLaunch{number, line.words[2]});
      if (line.words[3].getAsInteger(10, launch.n))
        return bad(text);
      if (isOfSome) {
        launch.first = line.at(5);
        launch.end = line.at(7);
      }
      continue;
    }
    int cta = 0, warp = 0;
    if (launches.empty() || line.words.size() < 3 || line.words[0].getAsInteger(10, cta) ||
        line.words[1].getAsInteger(10, warp) || warp < 0 || warp > 10)
      return bad(text);
    steps = &launches.back().warps[{cta, warp}];
    steps->push_back({number, text.substr(line.words[2].data() - text.data()), {}});
  }
  return launches;
}
