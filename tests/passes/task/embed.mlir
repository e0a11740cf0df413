// The first launch: the epilogue publishes the embedding; the prologue ends the embedding stage, since
// nothing crosses into this launch. Uneven slices have fewer m-tiles and a narrower last one.
// RUN: megalith-opt %s --pass-pipeline='builtin.module(task.kernel(task-materialize-exchanges,task-plan-streams),task-select-protocol,task.kernel(task-plan-memory,task-lower-to-roles))' | FileCheck %s

task.kernel @first "embed" target "sm_90a" sms 4 rows 2 {
  task.buffer @embedding [1000, 256] bf16 global immutable {slot = 0}
  task.buffer @g_attn [1, 256] bf16 global immutable {slot = 1}
  task.weights @w_qkv n 320 k 256 slot 2 rows ["qkv"]
  task.buffer @resid [2, 256] bf16 global value {crossing}
  task.buffer @qkv [2, 320] bf16 global value {crossing}
  // CHECK: task.stage @embed
  // CHECK-SAME: base = "Embedding<embedding, 256>"
  // CHECK: role epilogue
  // CHECK-NEXT: task.launch_wait
  // CHECK-NEXT: task.compute "publish_embedding<embed, resid_words>" [] reads [@embedding[0, 0] 1000 x [256]] writes [@resid[0, d0 * 64] 2 x [64]]
  // CHECK: role poller
  // CHECK-NEXT: task.launch_wait
  // CHECK-NEXT: task.rearm @resid
  // CHECK-NEXT: task.rearm @qkv
  // CHECK-NEXT: task.launch_dependents
  task.stage @embed embed tiles 4 sms 4 assign affine_map<(t) -> (t, 0)>
      reads [@embedding[0, 0] 1000 x [256]] writes [@resid[0, d0 * 64] 2 x [64]]
      config {hidden = 256, vocab = 1000} {
  }
  // 160 strips in slices of 60: 8 m-tiles on two SMs, 5 on the third.
  // CHECK: task.stage @qkv_proj
  // CHECK: task.for "mtile" in [8, (d0 * -60 + 167) floordiv 8]
  // CHECK: epilogue_words<qkv_proj, qkv_words>
  // CHECK-SAME: writes [@qkv[0, d0 * 120 + d1 * 16] 2 x [16, d1 * -16 + 120, d0 * -120 - d1 * 16 + 320]]
  task.stage @qkv_proj linear tiles 3 sms 3 assign affine_map<(t) -> (t, 0)>
      reads [@resid[0, 0] 2 x [256], @w_qkv[d0 * 60, 0] 60 x [1]]
      writes [@qkv[0, d0 * 120] 2 x [120, 320 - d0 * 120]]
      config {n = 320, k = 256, unit = 60, norm = "rms", eps = 1.0e-06 : f64, gain = @g_attn, epilogue = "qkv"} {
  }
}
