// Hops of 4, 8 and 16 KB between 128 SMs, by each way of polling.
#include "tests/gpu/calibrate/hop.cuh"

#define HOP(NAME, WIDTH, POLLING)                                                                  \
  MEGALITH_KERNEL(calibrate_hop_##NAME) {                                                          \
    megalith::calibrate::Hop<128, WIDTH, megalith::calibrate::Polling::POLLING>::run(args);        \
  }

HOP(4k_one, 1024, one)
HOP(4k_hint, 1024, hint)
HOP(4k_two, 1024, two)
HOP(4k_chunks, 1024, chunks)
HOP(4k_chunks_hint, 1024, chunks_hint)
HOP(4k_tight, 1024, tight)
HOP(4k_tight_hint, 1024, tight_hint)
HOP(4k_tight_one, 1024, tight_one)
HOP(4k_tight_one_hint, 1024, tight_one_hint)
HOP(8k_one, 2048, one)
HOP(8k_hint, 2048, hint)
HOP(8k_two, 2048, two)
HOP(8k_chunks, 2048, chunks)
HOP(8k_chunks_hint, 2048, chunks_hint)
HOP(8k_tight, 2048, tight)
HOP(8k_tight_hint, 2048, tight_hint)
HOP(8k_tight_one, 2048, tight_one)
HOP(8k_tight_one_hint, 2048, tight_one_hint)
HOP(16k_one, 4096, one)
HOP(16k_hint, 4096, hint)
HOP(16k_two, 4096, two)
HOP(16k_chunks, 4096, chunks)
HOP(16k_chunks_hint, 4096, chunks_hint)
HOP(16k_tight, 4096, tight)
HOP(16k_tight_hint, 4096, tight_hint)

#define ROWS_HOP(NAME, WIDTH, ROWS)                                                                \
  MEGALITH_KERNEL(calibrate_hop_##NAME##_emitted_rows##ROWS) {                                     \
    using megalith::calibrate::Polling;                                                            \
    megalith::calibrate::Hop<128, WIDTH, Polling::emitted, 1, ROWS>::run(args);                    \
  }

ROWS_HOP(4k, 1024, 1)
ROWS_HOP(4k, 1024, 2)
ROWS_HOP(4k, 1024, 4)
ROWS_HOP(4k, 1024, 8)
ROWS_HOP(8k, 2048, 1)
ROWS_HOP(8k, 2048, 2)
ROWS_HOP(8k, 2048, 4)
ROWS_HOP(8k, 2048, 8)
