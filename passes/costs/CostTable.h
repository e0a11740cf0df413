//===- CostTable.h - What a target's machine costs ---------------*- C++ -*-===//
//
// Measured times and rates of one GPU, by name: `megalith calibrate` writes such a table, cost
// models read it. A table says how each figure was measured and how far it spread; a figure that
// could not be measured is there with the reason, so that no reader takes silence for zero.
//
// The file, JSON:
//   version  1
//   target   "sm_90a"
//   device   {"name", "sms", "driver_cuda", "nvrtc"}: what it was measured on
//   costs    [{"name":  words of [a-z0-9_] joined by dots, unique: "hop.4k.one.window2.us",
//              "unit":  one of costUnits(),
//              "value": median, or null: not measured,
//              "p10", "p90": spread of the runs (with a value only),
//              "runs":  how many (with a value only),
//              "how":   what was timed, a sentence (with a value),
//              "reason": why there is no value (without)}]
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_PASSES_COSTS_COSTTABLE_H
#define MEGALITH_PASSES_COSTS_COSTTABLE_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace megalith::costs {

inline constexpr int64_t kVersion = 1;

/// The units a cost may have: "us", "ns", "GB/s" (1e9 bytes a second), "B/clk" (bytes a clock of
/// one SM), "MHz", "ns/KB", "1/us".
llvm::ArrayRef<llvm::StringRef> costUnits();

/// A figure and its spread.
struct Measured {
  double value = 0; ///< median of the runs
  double p10 = 0, p90 = 0;
  int64_t runs = 0;
};

struct Cost {
  std::string name, unit;
  std::optional<Measured> measured;
  std::string note; ///< how it was measured, or why it was not
};

struct CostTable {
  std::string target;
  std::string device;     ///< name of the GPU
  int64_t sms = 0;        ///< that it has
  int64_t driverCuda = 0; ///< 13000 = 13.0
  std::string nvrtc;      ///< version of the compiler
  std::vector<Cost> costs;

  /// The cost of that name, or null.
  const Cost *find(llvm::StringRef name) const;
  /// Its value; an error that names the table's target and the command that makes a new table where
  /// it is not there or was not measured.
  llvm::Expected<double> value(llvm::StringRef name) const;
};

/// Parses and checks a table; `file` is its name in messages, which say what was expected where.
llvm::Expected<CostTable> parseCostTable(llvm::StringRef text, llvm::StringRef file);
llvm::Expected<CostTable> readCostTable(const std::string &file);

std::string toJson(const CostTable &table);
/// For people: a line a cost, aligned.
std::string toText(const CostTable &table);

} // namespace megalith::costs

#endif // MEGALITH_PASSES_COSTS_COSTTABLE_H
