// moe_by_hand.cu compiled for the host in two rows buckets.
#define MOE_NAME moe_rows4
#define MOE_ROWS 4
#include "tests/codegen/moe_by_hand.cu"
#undef MOE_NAME
#undef MOE_ROWS

#define MOE_NAME moe_rows8
#define MOE_ROWS 8
#include "tests/codegen/moe_by_hand.cu"
