// A whole kernel around the attention stage, as the generator would print it: attention and merge
// over a KV pool and the raw projections of the launch before.
#pragma once

#include "codegen/device/attention_row.cuh"
#include "codegen/device/merge.cuh"

namespace megalith::test {

/// Buffer slots of the test kernels.
enum Slot { kPool, kInvFreq, kQGain, kKGain, kQkv, kPartials, kAttn, kKScale, kVScale };

/// One variant of the test kernel. IsAlone: attention and merge are the consumers' alone.
template <int Sms, int Rows, int QHeads, int KvHeads, int HeadDim, int RopeDim, QkNorm Norm,
          int MergeParts, KvFormat Format = KvFormat::bf16, bool Scaled = false,
          bool IsAlone = Rows == 1>
struct AttentionKernel {
  struct Config {
    static constexpr int kSms = Sms, kRows = Rows, kEdges = 9;
  };
  static constexpr float kScale = HeadDim == 64 ? 0.125f : 0.08838835f;
  using Base = Attention<Config, 3, QHeads, KvHeads, HeadDim, RopeDim, MergeParts, Norm, 1e-6f,
                         kScale, kPool, kInvFreq, kQGain, kKGain, 1, 0, false, Format,
                         Scaled ? kKScale : -1, Scaled ? kVScale : -1>;
  using S = AttentionShape<Base>;

  struct w_full : MbarrierEdge<0, 0, 4, 1> {
    static constexpr char kName[] = "w_full";
  };
  struct w_free : MbarrierEdge<1, 32, 4, 8> {
    static constexpr char kName[] = "w_free";
  };
  struct qkv_here : MbarrierEdge<2, 64, 2, 1> {
    static constexpr char kName[] = "qkv_here";
  };
  struct qkv_free : MbarrierEdge<3, 80, 2, 8> {
    static constexpr char kName[] = "qkv_free";
  };
  struct mparts_full : MbarrierEdge<4, 96, 1, 1> {
    static constexpr char kName[] = "mparts_full";
  };
  struct mparts_free : MbarrierEdge<5, 104, 1, 1> {
    static constexpr char kName[] = "mparts_free";
  };
  using qkv = Words<kQkv, Rows, S::kQkvWidth / 2, 3>;
  struct qkv_words : WordsEdge<6, qkv> {
    static constexpr char kName[] = "qkv_words";
  };
  using partials = Epochs<kPartials, S::kPartials>;
  struct partials_words : EpochEdge<7, partials> {
    static constexpr char kName[] = "partials_words";
  };
  using attn = Words<kAttn, Rows, QHeads * HeadDim / 2, 2>;
  struct attn_words : WordsEdge<8, attn> {
    static constexpr char kName[] = "attn_words";
  };

  using ring = Ring<128, 4, S::kPieceBytes>;
  struct attention : Base {
    using QkvIn = SlottedRows<ring::kOffset + ring::kBytes, Rows, S::kQkvRow, 2>;
    using Query = SlottedRows<QkvIn::kOffset + QkvIn::kBytes, S::kQueryRows, S::kQueryStride>;
    using Tail = SlottedRows<Query::kOffset + Query::kBytes, S::kTailUnits, S::kUnitBytes>;
    using Mparts = SlottedRows<Tail::kOffset + Tail::kBytes, 32, S::kPartWords * 16>;
    using Apart = SlottedRows<Mparts::kOffset + Mparts::kBytes, S::kRecords, S::kRecordBytes>;
  };
  static constexpr uint32_t kSmemBytes = attention::Apart::kOffset + attention::Apart::kBytes;

  static MEGALITH_DEVICE void run(const LaunchArgs &args) {
    Cta<Config> cta(args);
    setup<w_full, w_free, qkv_here, qkv_free, mparts_full, mparts_free>(cta);
    AttentionTiles<attention> tiles(*args.step, cta.sm);
    MergeTiles<attention> merges(*args.step, cta.sm);
    AttentionTile tile;
    MergeTile part;
    if (cta.role == Role::producer) {
      while (tiles.next(tile))
        for (int i = 0; i < full_pieces<attention>(tile); ++i) {
          acquire<w_free>(cta);
          copy_units<attention, ring, w_full>(cta, tile, i);
        }
    } else if (cta.role == Role::poller) {
      while (!IsAlone && tiles.next(tile)) {
        const int slot = acquire<qkv_free>(cta);
        poll_qkv_tile<attention, Previous<qkv_words>>(cta, tile, slot);
        signal<qkv_here>(cta);
      }
      launch_wait();
      rearm<qkv>(cta);
      rearm<attn>(cta);
      launch_dependents();
      while (!IsAlone && merges.next(part)) {
        const int slot = acquire<mparts_free>(cta);
        poll_partials<attention, partials_words>(cta, part, slot);
        signal<mparts_full>(cta);
      }
    } else if (cta.role == Role::consumer) {
      const auto constants = attention_constants<attention>(cta);
      AttentionState<attention> state;
      while (tiles.next(tile)) {
        attention_prepare<attention>(cta, tile, constants, state);
        if constexpr (IsAlone) {
          HeadWords<attention> words;
          poll_heads<attention, Previous<qkv_words>>(cta, tile, words);
          attention_begin<attention>(cta, tile, words, constants, state);
        } else {
          const int rows = wait<qkv_here>(cta);
          attention_begin<attention>(cta, tile, rows, constants, state);
          release<qkv_free>(cta);
        }
        for (int i = 0; i < full_pieces<attention>(tile); ++i) {
          const int slot = wait<w_full>(cta);
          attention_piece<attention, ring>(cta, tile, slot, i, state);
          release<w_free>(cta);
        }
        attention_tail<attention>(cta, tile, state);
        for (int round = 0; round < AttentionShape<attention>::kRounds; ++round) {
          attention_finish<attention>(cta, tile, state, round);
          launch_wait();
          publish_partials<attention, partials_words>(cta, tile, state, round);
        }
        attention_append<attention>(cta, tile);
      }
      if constexpr (IsAlone) {
        launch_wait();
        while (merges.next(part)) {
          consumer_sync();
          poll_partials<attention, partials_words>(cta, part);
          merge_splits<attention, attn_words>(cta, part);
        }
      }
    } else {
      launch_wait();
      while (!IsAlone && merges.next(part)) {
        const int slot = wait<mparts_full>(cta);
        merge_splits<attention, attn_words>(cta, part, slot);
        release<mparts_free>(cta);
      }
    }
  }
};

using Grouped8 = AttentionKernel<5, 8, 16, 2, 128, 128, QkNorm::weighted, 4>;
using Grouped4 = AttentionKernel<3, 8, 8, 2, 64, 64, QkNorm::none, 1>;
/// The same attention for another bucket, number of SMs and number of merge parts.
using Grouped4OneRow = AttentionKernel<7, 1, 8, 2, 64, 64, QkNorm::none, 2>;
using Single = AttentionKernel<4, 4, 3, 3, 128, 64, QkNorm::plain, 2>;
using OneRow = AttentionKernel<6, 1, 8, 1, 64, 0, QkNorm::none, 1>;
using Wide = AttentionKernel<2, 2, 4, 1, 256, 64, QkNorm::weighted, 2>;
/// More query vectors than 8 column tiles hold.
using Rounds = AttentionKernel<3, 8, 24, 2, 64, 64, QkNorm::none, 1>;

/// Pages of e4m3: four units a piece, two, and all that the others have; with scales and without.
using Codes8 =
    AttentionKernel<5, 8, 16, 2, 128, 128, QkNorm::weighted, 4, KvFormat::e4m3, /*Scaled=*/true>;
using CodesOneRow =
    AttentionKernel<6, 1, 8, 1, 64, 0, QkNorm::none, 1, KvFormat::e4m3, false, /*IsAlone=*/false>;
using CodesFew = AttentionKernel<4, 4, 8, 1, 64, 0, QkNorm::none, 1, KvFormat::e4m3>;
using CodesWide =
    AttentionKernel<2, 2, 4, 1, 256, 64, QkNorm::weighted, 2, KvFormat::e4m3, /*Scaled=*/true>;
using CodesRounds = AttentionKernel<3, 8, 24, 2, 64, 64, QkNorm::none, 1, KvFormat::e4m3>;

} // namespace megalith::test
