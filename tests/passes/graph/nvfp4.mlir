// NVFP4 weights become tiles: slices are whole tiles of eight strips, pieces of a K block, and the matrix's factors multiply finished sums.
// RUN: megalith-opt %s -split-input-file -verify-diagnostics -pass-pipeline='builtin.module(moe-convert-to-task{sms=6},task.kernel(task-choose-tiles,task-assign-sms))' -o %t && FileCheck %s < %t
// RUN: megalith-opt %s -split-input-file -verify-diagnostics -pass-pipeline='builtin.module(moe-convert-to-task{sms=6},task.kernel(task-choose-tiles,task-assign-sms,task-materialize-exchanges,task-elide-exchanges,task-plan-streams),task-select-protocol,task.kernel(task-plan-memory,task-lower-to-roles),task-verify)' -o %t && FileCheck %s --check-prefix=ROLES < %t

// 128 strips over 6 SMs: 22 each, so 24. K 4096: 32 k16 steps a chunk, two blocks of 16.
// CHECK: task.weights @w_proj_nvfp4 n 256 k 4096 slot {{[0-9]}} rows ["w"] {nvfp4}
// CHECK: task.stage @proj linear tiles 6 sms 6 {{.*}}reads [@x[0, 0] 1 x [4096], @w_proj_nvfp4[d0 * 24, 0] 24 x [2]] {{.*}}unit = 24

// ROLES: task.ring @ring {{[0-9]+}} x 18432
// ROLES: base = "Nvfp4Slices<w_proj_nvfp4, 256, 4096, 24>"
// ROLES: task.for "block" in 2
// ROLES: task.copy "copy_piece<w_full, ring, proj>" ["mtile", "block"] @w_proj_nvfp4[d0 * 24 + d1 * 8, d2] 8 x [1] to @ring
// ROLES: role epilogue
// ROLES: task.local "factors" : "const FloatPair" = "weight_factors<proj>(cta)"
// ROLES-NEXT: task.for "mtile"
// ROLES-NEXT: task.wait @p_full
// ROLES-NEXT: task.compute "sum_scaled<part>" ["place", "factors"]

!nvfp4 = !moe.block_format<f4E2M1FN, block = [1, 16], scale = f8E4M3FN, global = f32>
moe.weight @proj [256, 4096] of !nvfp4 from "w"
func.func @linear(%x: tensor<1x4096xbf16>) -> tensor<1x256xbf16> attributes {megalith.launch = "toy"} {
  %y = moe.linear %x weight(@proj) : tensor<1x4096xbf16> -> tensor<1x256xbf16>
  return %y : tensor<1x256xbf16>
}

// -----

// Other block formats have no kernels.
// expected-error @+1 {{'moe.weight' op has no kernel form yet: of block formats only NVFP4, but it is '!moe.block_format<f4E2M1FN, block = [1, 32], scale = f8E8M0FNU>'}}
moe.weight @w [256, 512] of !moe.block_format<f4E2M1FN, block = [1, 32], scale = f8E8M0FNU> from "w"
func.func @mxfp4(%x: tensor<1x512xbf16>) -> tensor<1x256xbf16> attributes {megalith.launch = "toy"} {
  %y = moe.linear %x weight(@w) : tensor<1x512xbf16> -> tensor<1x256xbf16>
  return %y : tensor<1x256xbf16>
}

// -----

// Tiles of 16 rows.
!nvfp4 = !moe.block_format<f4E2M1FN, block = [1, 16], scale = f8E4M3FN, global = f32>
moe.weight @w [40, 512] of !nvfp4 from "w"
// expected-error @+1 {{'task.weights' op expected n and k of NVFP4 weights to be multiples of 16, but got 40 and 512}}
func.func @height(%x: tensor<1x512xbf16>) -> tensor<1x40xbf16> attributes {megalith.launch = "toy"} {
  %y = moe.linear %x weight(@w) : tensor<1x512xbf16> -> tensor<1x40xbf16>
  return %y : tensor<1x40xbf16>
}

// -----

// A tensor that is bf16 in some layers and NVFP4 in others: kernels of their own, weights told apart by name.
// CHECK: task.kernel @plain
// CHECK: task.weights @w_o n 256 k 512 slot {{[0-9]}} rows ["o.{layer}"]{{$}}
// CHECK: task.stage @o_proj linear
// CHECK: task.kernel @coded
// CHECK: task.weights @w_o_nvfp4 n 256 k 512 slot {{[0-9]}} rows ["o.{layer}"] {nvfp4}
// CHECK: task.stage @o_proj linear
!nvfp4 = !moe.block_format<f4E2M1FN, block = [1, 16], scale = f8E4M3FN, global = f32>
moe.weight @o_proj [256, 512] of bf16 from "o.{layer}"
moe.weight @o_proj_nvfp4 [256, 512] of !nvfp4 from "o.{layer}"
func.func @plain(%x: tensor<1x512xbf16>) -> tensor<1x256xbf16> attributes {megalith.launch = "toy"} {
  %y = moe.linear %x weight(@o_proj) : tensor<1x512xbf16> -> tensor<1x256xbf16>
  return %y : tensor<1x256xbf16>
}
func.func @coded(%x: tensor<1x512xbf16>) -> tensor<1x256xbf16> attributes {megalith.launch = "toy"} {
  %y = moe.linear %x weight(@o_proj_nvfp4) : tensor<1x512xbf16> -> tensor<1x256xbf16>
  return %y : tensor<1x256xbf16>
}
