// A kernel around the top-k stage, as the generator would print it, but for its ends: the logits
// come from global memory, and the epilogue copies the routing table out.
#pragma once

#include "codegen/device/edges.cuh"
#include "codegen/device/router.cuh"

namespace megalith::test {

/// Buffer slots of the router's test kernels.
enum RouterSlot { kLogits, kTable, kBias, kRoutingIn, kRoutingOut };

/// One variant of the test kernel: the consumers route, or, of one row, the poller (`Aside`), who
/// weighs the pairs when the lists are handed on.
template <int Rows, int Experts, int K, ExpertWeights Weights_, bool Biased, bool Aside = false>
struct RouterKernel {
  static constexpr bool kAside = Aside;
  struct Config {
    static constexpr int kSms = 2, kRows = Rows, kEdges = 2;
  };
  using Base = TopK<Config, Experts, K, Weights_, Biased ? 2.5f : 1.0f, Biased ? kBias : -1,
                    kRoutingIn, kRoutingOut, 1>;
  using Table = RoutingTable<Base>;
  struct routed : MbarrierEdge<0, 0, 1, Aside ? 1 : 8> {
    static constexpr char kName[] = "routed";
  };
  struct weighed : MbarrierEdge<1, 8, 1, 1> {
    static constexpr char kName[] = "weighed";
  };
  struct Together : Base {
    using Logits = WordRows<16, Rows, Experts>;
    using Routing = SlottedRows<16 + Logits::kBytes, 1, sizeof(Table)>;
  };
  template <bool, class = void> struct Place : Together {};
  template <class Any> struct Place<true, Any> : Together {
    using Weights = WordRows<Together::Routing::kOffset + Together::Routing::kBytes, 1, K>;
  };
  using top_k = Place<Aside>;
  static constexpr uint32_t kSmemBytes =
      Together::Routing::kOffset + Together::Routing::kBytes + (Aside ? 4 * K : 0);

  static MEGALITH_DEVICE void load(const Cta<Config> &cta) {
    const auto *source = static_cast<const float *>(cta.args.buffer[kLogits]);
    if (cta.role_warp < Rows)
      for (int e = cta.lane; e < Experts; e += 32)
        platform::st_shared(top_k::Logits::row(cta, cta.role_warp) + e,
                            platform::ld_const<float>(source + cta.role_warp * Experts + e));
    platform::warp_sync();
  }

  static MEGALITH_DEVICE void run(const LaunchArgs &args) {
    Cta<Config> cta(args);
    setup<routed, weighed>(cta);
    if (cta.role == (Aside ? Role::poller : Role::consumer)) {
      const auto bias = load_bias<top_k>(cta);
      load(cta);
      if constexpr (Aside) {
        route_row<top_k>(cta, bias);
        signal<routed>(cta);
        weigh_row<top_k>(cta);
        signal<weighed>(cta);
      } else {
        select_experts<top_k>(cta, bias);
        group_experts<top_k>(cta);
        signal<routed>(cta);
      }
    } else if (cta.role == Role::epilogue) {
      launch_wait();
      wait<routed>(cta);
      // Both SMs store: each routes for itself.
      auto *out = static_cast<uint32_t *>(args.buffer[kTable]) + cta.sm * (sizeof(Table) / 4);
      const auto *table = reinterpret_cast<const uint32_t *>(routing_table<top_k>(cta));
      const int words = (Aside ? sizeof(RoutingLists<Base>) : sizeof(Table)) / 4;
      for (int i = cta.lane; i < words; i += 32)
        platform::st_global(out + i, platform::ld_shared<uint32_t>(table + i));
      if constexpr (Aside) {
        wait<weighed>(cta);
        if (cta.lane < K) { // the rest of a whole table
          const int id = platform::ld_shared<int32_t>(&routing_table<top_k>(cta)->expert[cta.lane]);
          platform::st_global(out + words + cta.lane,
                              platform::ld_shared<uint32_t>(weights_of<top_k>(cta) + cta.lane));
          platform::st_global<int32_t>(out + words + K + cta.lane, cta.is_live(0) ? id : -1);
        }
      }
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
using Aside = RouterKernel<1, 256, 8, ExpertWeights::sigmoid_renormalised, true, true>;

} // namespace megalith::test
