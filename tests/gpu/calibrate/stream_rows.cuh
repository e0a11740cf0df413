// A row of a residual stream that is kept in fp32, as every SM makes it: its words and its branch's
// polled where they are there already, the branch normed and joined, the row normed.
// Sample: as in parts.cuh.
#pragma once

#include "codegen/device/stream_rows.cuh"
#include "tests/gpu/calibrate/parts.cuh"

namespace megalith::calibrate {

/// Rows of Width channels. The words are zeros (job.zeros); tables are the data.
template <int Sms, int Width> struct StreamParts {
  using Config = PartsConfig<Sms, 1>;
  using Cta = megalith::Cta<Config>;
  using Xs = Rows<0, 1, Width>;
  using Sums = WordRows<(Xs::kBytes + 127) / 128 * 128, 2, kConsumerWarps>;
  static constexpr uint32_t kSmem = Sums::kOffset + Sums::kBytes;
  static_assert(kSmem <= 232448);
  // What is read is of the set before that which this launch stores to; the branch's lies behind
  // all.
  using Resid = Words<kWords, 1, Width, 3>;
  using Branch = Words<kWords, 8, Width / 2, 2>;
  static constexpr int kBranchRow = 7;

  struct resid_words : WordsEdge<0, Resid> {
    static constexpr char kName[] = "resid_words";
  };
  struct branch_words : WordsEdge<1, Branch> {
    static constexpr char kName[] = "branch_words";
  };
  struct joined : StreamRows<Xs, Sums, BranchNorm::rms, 1e-6f, kData, kData, 1e-6f, kData, false> {
  };
  struct alone
      : StreamRows<Xs, Sums, BranchNorm::absent, 1e-6f, kWeightless, -1, 1e-6f, kData, false> {};

  static MEGALITH_DEVICE void run(const LaunchArgs &args) {
    Cta cta(args);
    cta.settle();
    cta.live = 1;
    const Job job = job_of(cta);
    if (cta.role != Role::consumer)
      return;
    time_parts(cta, job, cta.role_warp == 0, [&](uint32_t, Clocks &clocks) {
      consumer_sync();
      clocks.start();
      StreamWords<joined> stream;
      poll_stream<joined, Previous<resid_words>>(cta, 0, stream);
      clocks.end(0);
      BranchWords<joined> branch;
      poll_branch<joined, branch_words>(cta, kBranchRow, branch);
      clocks.end(1);
      join_row<joined, resid_words>(cta, 0, stream, branch);
      clocks.end(2);
      consumer_sync(); // the sums have been read
      StreamWords<alone> again;
      poll_stream<alone, Previous<resid_words>>(cta, 0, again);
      clocks.end(3);
      norm_row<alone>(cta, 0, again);
      clocks.end(4);
    });
  }
};

} // namespace megalith::calibrate
