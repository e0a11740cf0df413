// m0_by_hand.cu compiled for the host: rows buckets 1 and 8, and one kernel that lacks a wait.
#define M0_NAME m0_rows1
#define M0_ROWS 1
#include "tests/codegen/m0_by_hand.cu"
#undef M0_NAME
#undef M0_ROWS
#undef M0_KERNEL

#define M0_NAME m0_rows8
#define M0_ROWS 8
#include "tests/codegen/m0_by_hand.cu"
#undef M0_NAME
#undef M0_ROWS
#undef M0_KERNEL

#define M0_NAME m0_dropped_wait
#define M0_ROWS 1
#define M0_DROP_WAIT
#include "tests/codegen/m0_by_hand.cu"
