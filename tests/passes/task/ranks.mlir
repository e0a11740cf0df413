// One GPU's kernels become those of one of two ranks, from stages to the roles that join ranks.
// RUN: megalith-opt %S/Inputs/model.mlir --megalith-pipeline="sms=4 ranks=2" | FileCheck %s
// RUN: megalith-opt %S/Inputs/model.mlir --megalith-pipeline="sms=4 ranks=2" --task-verify -o /dev/null
// RUN: not megalith-opt %S/Inputs/model.mlir --megalith-pipeline="sms=4 ranks=8" 2>&1 | FileCheck %s --check-prefix=EIGHT
