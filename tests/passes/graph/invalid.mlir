// What has no kernel form yet is refused by its name, on its op.
// RUN: megalith-opt %s -split-input-file -verify-diagnostics -pass-pipeline='builtin.module(moe-convert-to-task)'

moe.weight @w [64, 128] of bf16 from "a"
moe.weight @b [64] of bf16 from "b"
func.func @bias(%x: tensor<1x128xbf16>) -> tensor<1x64xbf16> attributes {megalith.launch = "toy"} {
  // expected-error @+1 {{'moe.linear' op has no kernel form yet: a bias}}
  %y = moe.linear %x weight(@w) bias(@b) : tensor<1x128xbf16> -> tensor<1x64xbf16>
  return %y : tensor<1x64xbf16>
}

// -----

moe.weight @gain [128] of bf16 from "g"
func.func @norm(%x: tensor<1x128xbf16>) -> tensor<1x128xbf16> attributes {megalith.launch = "toy"} {
  // expected-error @+1 {{has no kernel form yet: only an rms norm of whole rows}}
  %y = moe.norm %x layer weight(@gain) {eps = 1.0e-6} : tensor<1x128xbf16> -> tensor<1x128xbf16>
  return %y : tensor<1x128xbf16>
}

// -----

func.func @gate(%x: tensor<1x128xbf16>, %g: tensor<1x128xbf16>) -> tensor<1x128xbf16> attributes {megalith.launch = "toy"} {
  // expected-error @+1 {{'moe.output_gate' op has no kernel form yet: only of attention's output}}
  %y = moe.output_gate %x, %g : tensor<1x128xbf16>, tensor<1x128xbf16> -> tensor<1x128xbf16>
  return %y : tensor<1x128xbf16>
}
