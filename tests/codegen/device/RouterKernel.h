// A kernel around the top-k stage, as the generator would print it, but for its ends: the logits
// come from global memory, and the epilogue copies the routing table out.
#pragma once

#include "codegen/device/edges.cuh"
#include "codegen/device/router.cuh"

namespace megalith::test {

/// Buffer slots of the router's test kernels.
enum RouterSlot { kLogits, kTable, kBias, kRoutingIn, kRoutingOut };

/// One variant of the test kernel.
template <int Rows, int Experts, int K, ExpertWeights Weights, bool Biased> struct RouterKernel {
  struct Config {
    static constexpr int kSms = 2, kRows = Rows, kEdges = 1;
  };
  using Base = TopK<Config, Experts, K, Weights, Biased ? 2.5f : 1.0f, Biased ? kBias : -1,
                    kRoutingIn, kRoutingOut, 1>;
  struct routed : MbarrierEdge<0, 0, 1, 8> {
    static constexpr char kName[] = "routed";
  };
  struct top_k : Base {
    using Logits = WordRows<16, Rows, Experts>;
    using Routing = SlottedRows<16 + Logits::kBytes, 1, sizeof(RoutingTable<Base>)>;
  };
  using Table = RoutingTable<top_k>;
  static constexpr uint32_t kSmemBytes = top_k::Routing::kOffset + top_k::Routing::kBytes;

  static MEGALITH_DEVICE void run(const LaunchArgs &args) {
    Cta<Config> cta(args);
    setup<routed>(cta);
    if (cta.role == Role::consumer) {
      const auto *source = static_cast<const float *>(args.buffer[kLogits]);
      if (cta.role_warp < Rows)
        for (int e = cta.lane; e < Experts; e += 32)
          platform::st_shared(top_k::Logits::row(cta, cta.role_warp) + e,
                              platform::ld_const<float>(source + cta.role_warp * Experts + e));
      const auto bias = load_bias<top_k>(cta);
      platform::warp_sync();
      select_experts<top_k>(cta, bias);
      group_experts<top_k>(cta);
      signal<routed>(cta);
    } else if (cta.role == Role::epilogue) {
      launch_wait();
      wait<routed>(cta);
      // Both SMs store: each routes for itself.
      auto *out = static_cast<uint32_t *>(args.buffer[kTable]) + cta.sm * (sizeof(Table) / 4);
      const auto *table = reinterpret_cast<const uint32_t *>(routing_table<top_k>(cta));
      for (int i = cta.lane; i < int(sizeof(Table) / 4); i += 32)
        platform::st_global(out + i, platform::ld_shared<uint32_t>(table + i));
    }
  }
};

using Small = RouterKernel<8, 4, 2, ExpertWeights::softmax_renormalised, false>;
using Many = RouterKernel<8, 128, 8, ExpertWeights::softmax_renormalised, false>;
using Most = RouterKernel<4, 512, 16, ExpertWeights::softmax, false>;
using Biased = RouterKernel<2, 60, 4, ExpertWeights::sigmoid_renormalised, true>;
// So small that every routing can be tried.
using Tiny2 = RouterKernel<3, 3, 2, ExpertWeights::softmax_renormalised, false>;
using Tiny3 = RouterKernel<2, 4, 3, ExpertWeights::softmax, false>;
using Tiny1 = RouterKernel<4, 3, 1, ExpertWeights::sigmoid, false>;
using Plain = RouterKernel<1, 8, 2, ExpertWeights::sigmoid, false>;

} // namespace megalith::test
