// Wide rows by hand, on 2 SMs: read, norm, publish, poll. 5000 channels need padding, several
// batches of loads a lane in the norm and several windows of a poll. ROWS_GAIN is the buffer slot
// of the norm's gains, or kWeightless; ROWS_NAME the kernel's name.
#include "codegen/device/edges.cuh"
#include "codegen/device/exchange.cuh"
#include "codegen/device/norm.cuh"

#define ROWS_KERNEL(NAME) MEGALITH_KERNEL(NAME)

namespace megalith::ROWS_NAME {

struct Config {
  static constexpr int kSms = 2;
  static constexpr int kRows = 2;
  static constexpr int kEdges = 4;
};
using Cta = megalith::Cta<Config>;

constexpr int x = 0, out = 2;
using y = Words<3, Config::kRows, 2500, 2>;
using xs = Rows<0, Config::kRows, 5000>;
using ys = Rows<xs::kBytes, Config::kRows, 5000>;
using norm = RmsNorm<xs, ROWS_GAIN, 1e-5f>;

struct x_full : MbarrierEdge<0, ys::kOffset + ys::kBytes, 1, 1> {
  static constexpr char kName[] = "x_full";
};
struct normed : MbarrierEdge<1, ys::kOffset + ys::kBytes + 8, 1, 8> {
  static constexpr char kName[] = "normed";
};
struct y_words : WordsEdge<2, y> {
  static constexpr char kName[] = "y_words";
};
struct y_full : MbarrierEdge<3, ys::kOffset + ys::kBytes + 16, 1, 1> {
  static constexpr char kName[] = "y_full";
};

ROWS_KERNEL(ROWS_NAME) {
  Cta cta(args);
  setup<x_full, normed, y_full>(cta);
  switch (cta.role) {
  case Role::producer:
    return;
  case Role::poller:
    read_rows<xs, x>(cta);
    signal<x_full>(cta);
    launch_wait();
    rearm<y>(cta);
    launch_dependents();
    poll_rows<y_words, ys>(cta);
    signal<y_full>(cta);
    return;
  case Role::consumer: // SM i stores row i, padding included
    wait<x_full>(cta);
    rms_norm<norm>(cta);
    signal<normed>(cta);
    wait<y_full>(cta);
    launch_wait();
    for (int i = 32 * cta.role_warp + cta.lane; i < ys::kPadded / 2; i += 32 * kConsumerWarps)
      platform::st_global(static_cast<uint32_t *>(cta.args.buffer[out]) + ys::kPadded / 2 * cta.sm +
                              i,
                          platform::ld_shared<uint32_t>(ys::row(cta, cta.sm) + 4 * i));
    return;
  case Role::epilogue: // SM i publishes the words 2j + i
    launch_wait();
    wait<normed>(cta);
    for (int row = 0; row < Config::kRows; ++row)
      for (int i = 2 * cta.lane + cta.sm; i < y::kWidth; i += 64)
        publish<y_words>(cta, row, i,
                         canonical_pair(platform::ld_shared<uint32_t>(xs::row(cta, row) + 4 * i)));
    return;
  }
}

} // namespace megalith::ROWS_NAME
