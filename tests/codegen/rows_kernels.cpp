// rows_by_hand.cu compiled for the host, with and without gains.
#define ROWS_NAME rows_weighted
#define ROWS_GAIN 1
#include "tests/codegen/rows_by_hand.cu"
#undef ROWS_NAME
#undef ROWS_GAIN

#define ROWS_NAME rows_weightless
#define ROWS_GAIN kWeightless
#include "tests/codegen/rows_by_hand.cu"
