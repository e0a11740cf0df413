// All of the dialect: what the generator reads.
#ifndef MEGALITH_IR_MOE_OPS_TD
#define MEGALITH_IR_MOE_OPS_TD

include "ir/moe/MoeModuleOps.td"
include "ir/moe/MoeAttentionOps.td"
include "ir/moe/MoeExpertOps.td"

#endif
