//===- Cells.h - The steps that the host matrix runs -------------*- C++ -*-===//
#ifndef MEGALITH_TESTS_HOST_CELLS_H
#define MEGALITH_TESTS_HOST_CELLS_H

#include "tools/check/Workload.h"

#include <string>
#include <vector>

namespace megalith::test {

/// One kind of step for a rows bucket: "3 sequences, a dead row between".
struct Cell {
  std::string name;
  check::Workload workload;
};

/// Contexts from 1 to several pages, ragged, at the borders of units and pages; dead rows at the
/// start, between and at the end; several rows of one sequence; mixes of them. `rows`: 1, 2, 4
/// or 8.
std::vector<Cell> cells(int64_t rows);

/// Pages that every cell's workload fits into.
inline constexpr int64_t kMaxPages = 5, kPoolPages = 32;

} // namespace megalith::test

#endif // MEGALITH_TESTS_HOST_CELLS_H
