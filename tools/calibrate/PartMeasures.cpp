//===- PartMeasures.cpp - What consumers and epilogues compute, by parts --===//

#include "tools/calibrate/Measures.h"

#include "llvm/Support/FormatVariadic.h"

using llvm::Expected;
using llvm::formatv;
using llvm::StringRef;

namespace megalith::calibrate {

constexpr uint32_t kSms = 128;

/// ns of each part in a round, mean over the SMs.
static Expected<std::vector<double>> partTimes(Session &session, StringRef kernel, const Job &job,
                                               size_t parts) {
  auto samples = session.run(kernel, job);
  if (!samples)
    return samples.takeError();
  std::vector<double> times(parts);
  for (const Sample &s : *samples) {
    const double nsOfClock = double(s.end - s.begin) / double(std::max<uint64_t>(s.sum[7], 1));
    for (size_t i = 0; i < parts; ++i)
      times[i] += double(s.sum[i]) * nsOfClock / job.rounds / double(samples->size());
  }
  return times;
}

static constexpr struct {
  Heat heat;
  const char *suffix, *how;
} kHeats[] = {{kWarm, "", ""},
              {kNear, ".near", ", after 80 KB of other code"},
              {kFar, ".far", ", after 192 KB of other code"}};

/// `names`: of the parts, in their order.
static void addPart(Measures &measures, const std::string &prefix, std::string kernel, Job job,
                    std::vector<const char *> names, const std::string &how) {
  job.sms = kSms;
  job.rounds = 200;
  job.warmup = 10;
  for (const auto &heat : kHeats) {
    job.variant = heat.heat;
    Measure measure = {{}, how + heat.how, [=, count = names.size()](Session &session) {
                         return partTimes(session, kernel, job, count);
                       }};
    for (const char *name : names)
      measure.outputs.push_back({formatv("part.{0}.{1}{2}", prefix, name, heat.suffix), "ns"});
    measures.push_back(std::move(measure));
  }
}

/// What roles do in a launch before their first tile of attention: of one launch, not of rounds.
static void addOpening(Measures &measures, int rows) {
  for (const auto &heat : kHeats) {
    const std::string kernel = formatv("calibrate_attention_rows{0}", rows);
    Measure measure = {
        {},
        formatv("from a launch's begin to the first tile of attention, in a bucket "
                "of {0} rows: consumers with gains and frequencies from HBM, "
                "poller, producer with the first page; consumers' next tile, behind "
                "the wait for the launch before{1}",
                rows, heat.how),
        [=](Session &session) {
          const Job job = {.sms = kSms,
                           .rounds = 1,
                           .piece = kPieceBytes,
                           .stride = kOpenParts,
                           .variant = heat.heat};
          // Other data through L2: gains of a layer come from HBM.
          const Job read = {
              .sms = kSms, .rounds = 64, .window = 4, .piece = kPieceBytes, .burst = 1};
          if (auto other = session.run("calibrate_read", read); !other)
            return Expected<std::vector<double>>(other.takeError());
          return partTimes(session, kernel, job, 4);
        }};
    for (const char *role : {"consumer", "poller", "producer", "next"})
      measure.outputs.push_back(
          {formatv("part.rows{0}.attention.open.{1}{2}", rows, role, heat.suffix), "ns"});
    measures.push_back(std::move(measure));
  }
}

void addParts(Measures &measures) {
  for (int rows : {1, 2, 4, 8}) {
    const std::string kernel = formatv("calibrate_dense_rows{0}", rows);
    const std::string prefix = formatv("rows{0}", rows);
    addPart(measures, prefix, kernel, {.stride = kNormParts}, {"norm"},
            formatv("RMS norm of {0} rows of 2048", rows));
    addPart(measures, prefix, kernel, {.stride = kTopKParts}, {"select", "group"},
            formatv("top 8 of 128 for {0} rows; the table of pairs", rows));
    addPart(measures, prefix, kernel, {.stride = kProductParts}, {"first", "three", "store"},
            formatv("product of a piece of 16 KB (8 strips, K 2048) with {0} rows; of three more; "
                    "chunk sums stored and signalled",
                    rows));
    addPart(measures, prefix, kernel, {.stride = kEpilogueParts},
            {"chunks", "words", "residual", "glu", "down", "combine"},
            formatv("the epilogue with 8 strips and {0} rows: chunks added up; words published; "
                    "residual added; gate and up of a pair; down of a pair; experts combined",
                    rows));
    addPart(measures, prefix, kernel, {.stride = kEntryParts}, {"entry", "again"},
            formatv("an expert's entry in the table and the product of its first piece, {0} rows; "
                    "that product again",
                    rows));
  }
  for (int width : {4096, 8192})
    addPart(measures, formatv("rows1.stream{0}", width), formatv("calibrate_stream_{0}", width),
            {.stride = kStreamParts, .zeros = 1}, {"words", "branch", "join", "alone", "norm"},
            formatv("a row of {0} of an fp32 stream, words and tables at hand: its words taken and "
                    "scaled; its branch's taken; that normed, joined, the row normed; its words "
                    "taken where no branch joins; normed then",
                    width));
  for (int rows : {1, 8}) {
    addOpening(measures, rows);
    const std::string kernel = formatv("calibrate_attention_rows{0}", rows);
    for (uint32_t splits : {8u, 32u})
      addPart(measures, formatv("rows{0}.merge", rows), kernel,
              {.burst = splits, .stride = kMergeTile}, {splits == 8 ? "few" : "splits"},
              formatv("{0} splits of a head merged, {1} channels", splits, rows == 1 ? 32 : 128));
    for (uint32_t pieces : {0u, 1u, 8u, 32u})
      addPart(measures, formatv("rows{0}.attention.pieces{1}", rows, pieces), kernel,
              {.burst = pieces, .walk = 1, .stride = kAttentionParts},
              {"prepare", "begin", "pieces", "finish", "publish"},
              formatv("attention of 8 heads of 128 channels in a bucket of {0} rows, no new "
                      "position, {1} pieces of 16 KB that are in the ring",
                      rows, pieces));
    for (auto [splits, pieces] : {std::pair(2u, 2u), {2u, 8u}, {4u, 8u}, {8u, 8u}})
      if (rows > 1)
        addPart(measures, formatv("rows{0}.attention.splits{1}x{2}", rows, splits, pieces / splits),
                kernel, {.window = splits, .burst = pieces, .walk = 1, .stride = kAttentionParts},
                {"prepare", "begin", "pieces", "finish", "publish"},
                formatv("the same of {0} splits side by side, {1} pieces each", splits,
                        pieces / splits));
    addPart(measures, formatv("rows{0}.attention.new", rows), kernel,
            {.burst = 8, .stride = kAttentionParts},
            {"prepare", "begin", "pieces", "finish", "publish", "append"},
            formatv("the same with 8 pieces and a new position, bucket of {0} rows", rows));
  }
}

} // namespace megalith::calibrate
