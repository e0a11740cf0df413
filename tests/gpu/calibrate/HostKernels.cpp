// The calibration kernels that use nothing but the shared headers, for the host platform, with 4
// SMs.
#include "tests/gpu/calibrate/boundary.cuh"
#include "tests/gpu/calibrate/gather.cuh"
#include "tests/gpu/calibrate/hop.cuh"
#include "tests/gpu/calibrate/memory.cu"
#include "tests/gpu/calibrate/own.cuh"
#include "tests/gpu/calibrate/pair.cu"
#include "tests/gpu/calibrate/parts.cuh"
#include "tests/gpu/calibrate/peer.cu"
#include "tests/gpu/calibrate/route.cuh"
#include "tests/gpu/calibrate/stream_rows.cuh"
#include "tests/gpu/calibrate/sweep.cuh"
#include "tests/gpu/calibrate/units.cu"

using namespace megalith::calibrate;

MEGALITH_KERNEL(hop_one) {
  Hop<4, 64, Polling::one>::run(args);
}
MEGALITH_KERNEL(hop_hint) {
  Hop<4, 64, Polling::hint>::run(args);
}
MEGALITH_KERNEL(hop_two) {
  Hop<4, 64, Polling::two>::run(args);
}
MEGALITH_KERNEL(hop_chunks) {
  Hop<4, 64, Polling::chunks>::run(args);
}
MEGALITH_KERNEL(hop_chunks_hint) {
  Hop<4, 64, Polling::chunks_hint>::run(args);
}
MEGALITH_KERNEL(boundary) {
  Boundary<4, 128>::run(args);
}
MEGALITH_KERNEL(route) {
  Route<4, 32, 4, false>::run(args);
}
MEGALITH_KERNEL(gather) {
  Gather<4, 2, 3>::run(args);
}
MEGALITH_KERNEL(own_records) {
  OwnRecords<4, 2, 130>::run(args);
}
MEGALITH_KERNEL(own_heads) {
  OwnHeads<4, 1>::run(args);
}
MEGALITH_KERNEL(own_rows) {
  OwnRows<4, 3, 8>::run(args);
}
MEGALITH_KERNEL(hop_copies) {
  Hop<4, 64, Polling::chunks, 3>::run(args);
}
// Tight polling takes 512 B a warp at least.
MEGALITH_KERNEL(hop_tight) {
  Hop<4, 1024, Polling::tight>::run(args);
}
MEGALITH_KERNEL(hop_tight_one) {
  Hop<4, 1024, Polling::tight_one>::run(args);
}
MEGALITH_KERNEL(hop_tight_hint) {
  Hop<4, 1024, Polling::tight_hint>::run(args);
}
MEGALITH_KERNEL(route_tight) {
  Route<4, 128, 4, true>::run(args);
}
MEGALITH_KERNEL(hop_emitted) {
  Hop<4, 64, Polling::emitted, 1, 2>::run(args);
}
MEGALITH_KERNEL(hop_emitted_batches) {
  Hop<4, 2048, Polling::emitted, 1, 8>::run(args);
}
MEGALITH_KERNEL(sweep) {
  Sweep<4, 96, 16, 4>::run(args);
}
MEGALITH_KERNEL(dense_rows1) {
  DenseParts<4, 1, 512, 32, 4>::run(args);
}
MEGALITH_KERNEL(dense_rows8) {
  DenseParts<4, 8, 512, 32, 4>::run(args);
}
MEGALITH_KERNEL(attention_rows1) {
  AttentionParts<4, 1, 8, 1, 128, 4>::run(args);
}
MEGALITH_KERNEL(attention_rows8) {
  AttentionParts<4, 8, 8, 2, 128, 1>::run(args);
}
MEGALITH_KERNEL(stream_rows) {
  StreamParts<4, 512>::run(args);
}
