// What device code makes of an NVFP4 matrix of 40 rows, by its width: to be what packing makes of
// it.
#pragma once

#include <cstdint>
#include <vector>

namespace megalith::test {

struct Nvfp4Width {
  int inputs, group, blockSteps;
  int64_t bytes;
};

/// For many widths up to 8400.
std::vector<Nvfp4Width> nvfp4Widths();

} // namespace megalith::test
