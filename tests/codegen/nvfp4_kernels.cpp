// nvfp4_by_hand.cu compiled for the host in several shapes: groups of 4, 2 and 1 steps, one and two
// blocks, widths that need padding, more SMs than tiles.
#define NVFP4_TOPK 2
#define NVFP4_EXPERTS 6
#define NVFP4_SLOTS 3

#define NVFP4_NAME nvfp4_rows1
#define NVFP4_SMS 3
#define NVFP4_ROWS 1
#define NVFP4_HIDDEN 512
#define NVFP4_INNER 128
#include "tests/codegen/nvfp4_by_hand.cu"
#undef NVFP4_NAME
#undef NVFP4_SMS
#undef NVFP4_ROWS
#undef NVFP4_HIDDEN
#undef NVFP4_INNER

#define NVFP4_NAME nvfp4_rows4
#define NVFP4_SMS 7
#define NVFP4_ROWS 4
#define NVFP4_HIDDEN 4096
#define NVFP4_INNER 48
#include "tests/codegen/nvfp4_by_hand.cu"
#undef NVFP4_NAME
#undef NVFP4_SMS
#undef NVFP4_ROWS
#undef NVFP4_HIDDEN
#undef NVFP4_INNER

#define NVFP4_NAME nvfp4_rows8
#define NVFP4_SMS 5
#define NVFP4_ROWS 8
#define NVFP4_HIDDEN 528
#define NVFP4_INNER 256
#include "tests/codegen/nvfp4_by_hand.cu"
#undef NVFP4_SMS

#define NVFP4_SMS 3
#define NVFP4_OUTPUTS 40
#define NVFP4_INPUTS 1024
#include "tests/gpu/nvfp4_bits.cu"

#include "tests/codegen/Nvfp4Widths.h"

namespace megalith::test {

namespace {
template <int... I> std::vector<Nvfp4Width> widths(std::integer_sequence<int, I...>) {
  return {{Nvfp4<0, 40, 112 * (I + 1)>::kInputs, Nvfp4<0, 40, 112 * (I + 1)>::kGroup,
           Nvfp4<0, 40, 112 * (I + 1)>::kBlockSteps,
           static_cast<int64_t>(Nvfp4<0, 40, 112 * (I + 1)>::kMatrixBytes)}...};
}
} // namespace

std::vector<Nvfp4Width> nvfp4Widths() {
  return widths(std::make_integer_sequence<int, 75>());
}

} // namespace megalith::test
