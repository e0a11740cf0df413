// NVFP4 experts that read NVFP4: the stages that multiply quantise their rows, and sums take the input scales too.
// The layer is small-model.mlir's.
// RUN: sed -e '1i !nvfp4 = !moe.block_format<f4E2M1FN, block = [1, 16], scale = f8E4M3FN, global = f32>' -e '/^moe.weight @final_norm/i moe.weight @up_scale [16, 1] of f32 from "model.layers.{layer}.mlp.experts.{expert}.gate_proj.input_scale"\nmoe.weight @down_scale [16, 1] of f32 from "model.layers.{layer}.mlp.experts.{expert}.down_proj.input_scale"' -e 's/^\(moe.weight @experts_.*\) of bf16/\1 of !nvfp4/' -e '/= moe.expert_gate_up/i %yq = moe.quantize %y global(@up_scale) : tensor<2x256xbf16> -> tensor<2x256x!nvfp4>' -e '/= moe.expert_down/i %hq = moe.quantize %h of %ids : tensor<2x4xi32> global(@down_scale) : tensor<8x128xbf16> -> tensor<8x128x!nvfp4>' -e 's/%y, %ids gate/%yq, %ids gate/' -e 's/tensor<2x256xbf16>, tensor<2x4xi32>/tensor<2x256x!nvfp4>, tensor<2x4xi32>/' -e 's/%h, %ids weight\(.*\) : tensor<8x128xbf16>/%hq, %ids weight\1 : tensor<8x128x!nvfp4>/' %S/small-model.mlir > %t.mlir
// RUN: megalith-opt %t.mlir -pass-pipeline='builtin.module(moe-cut-launches,moe-convert-to-task{sms=8})' | FileCheck %s
// RUN: megalith-opt %t.mlir -pass-pipeline='builtin.module(megalith-pipeline{sms=8},task-verify)' | FileCheck %s --check-prefix=ROLES
// RUN: not megalith-opt %t.mlir -megalith-pipeline='sms=8 launch=per-stage' 2>&1 | FileCheck %s --check-prefix=STAGES
// RUN: sed -e 's/of %ids : tensor<2x4xi32> global/global/' %t.mlir | not megalith-opt -pass-pipeline='builtin.module(moe-cut-launches,moe-convert-to-task{sms=8})' 2>&1 | FileCheck %s --check-prefix=SCALE
// RUN: sed -e 's/^\(moe.weight @experts_down.*\) of !nvfp4/\1 of bf16/' %t.mlir | not megalith-opt -pass-pipeline='builtin.module(moe-cut-launches,moe-convert-to-task{sms=8})' 2>&1 | FileCheck %s --check-prefix=BF16

// The router reads rows that are not quantised, so the experts bring theirs themselves.
// CHECK: task.stage @router linear
// CHECK: task.weights @w_up_nvfp4
// CHECK: task.stage @expert_up expert_up {{.*}}reads [@mid[0, 0] 2 x [256], @w_up_nvfp4{{.*}}norm = "rms", quantize = true
// CHECK: task.stage @expert_down expert_down {{.*}}@act{{.*}}quantize = true

// ROLES: task.compute "epilogue_logits<router
// ROLES: task.compute "rms_norm<expert_up::Norm>"
// ROLES-NEXT: task.compute "quantize_rows<expert_up, expert_up::In>"
// ROLES: task.compute "gemv_block<expert_up
// ROLES: task.local "factors" : "const FloatPair" = "quantized_factors<expert_up>(cta, expert.id)"
// ROLES: task.wait @act_full
// ROLES-NEXT: task.compute "quantize_slot<expert_down, act_rows>" ["acts", "expert.id", "expert.count"] reads [@act_rows{{.*}}] writes [@act_rows
// ROLES: task.local "factors" : "const FloatPair" = "quantized_factors<expert_down>(cta, expert.id)"

// An expert has 16 tiles of gates and ups: of 24 SMs each gets some, of one expert or another.
// RUN: megalith-opt %t.mlir -pass-pipeline='builtin.module(megalith-pipeline{sms=24},task-verify)' | FileCheck %s --check-prefix=DEAL
// DEAL: task.stage @expert_up expert_up sms 24 {{.*}}@w_up_nvfp4[0, 0] 128 x [1]] writes [@act[0, 0] 8 x [128]] config {{.*}}base = "Nvfp4<w_up_nvfp4, 256, 256, 1>", dealt = true
// DEAL: task.for "entry" in @active attributes {dealt = 16 : i64}
// DEAL-NEXT: task.for "unit" in [((d0 * 23 + d1 * 16 + 23) mod 24 + 16) floordiv 24]
// DEAL-NEXT: task.local "first" : "const int" = "unit.first()"
// DEAL: task.for "mtile" in 1
// DEAL: task.copy "copy_piece<w_full, ring, expert_up>" ["first + mtile", "block", "expert.id"]
// DEAL: task.compute "epilogue_glu<expert_up, act_words>" ["first + mtile", "sum", {{.*}} writes [@act[d1, 0, ((d0 + d1 * 8) mod 24 + d2 * 24) * 8 + d3 * 8] 2 x [8] table @expert_id]
// What an SM adds up itself stays in slices.
// DEAL: task.stage @expert_down {{.*}}base = "Nvfp4Slices<w_down_nvfp4, 256, 128, 8>"

// STAGES: error: {{.*}}has no form yet that quantises its activations in a launch of its own
// SCALE: 'moe.quantize' op has no kernel form yet: a scale other than the weights' own input scale
// BF16: 'moe.quantize' op has no kernel form yet: but before NVFP4 weights
