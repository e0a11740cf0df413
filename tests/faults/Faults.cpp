//===- Faults.cpp - Which faults, and planting them -----------------------===//

#include "tests/faults/Faults.h"

#include "codegen/headers.h"

namespace megalith::test {

llvm::ArrayRef<Fault> faults() {
  static const std::vector<Fault> list = {
      {"silent-role",
       "consumers never say that the routing is there",
       "routed",
       {{"", "  signal<routed>(cta);\n", ""}}},
      {"silent-sm",
       "SM 1 publishes no expert activations",
       "act_words",
       {{"", "epilogue_glu<", "if (cta.sm != 1)\n epilogue_glu<"}}},
      {"wrong-sentinel",
       "router logits are stored as the pattern that means empty",
       "logits_words",
       {{"codegen/device/exchange.cuh", "value != value ? 0x7FC00000u : float_to_bits(value)",
         "kEmptyWord"}}},
      {"wrong-epoch",
       "partial results carry the epoch of another launch",
       "partials_words",
       {{"codegen/device/exchange.cuh", "float_to_bits(value.c), epoch_of(cta)}",
         "float_to_bits(value.c), epoch_of(cta) + 1}"}}},
      {"absent-sm",
       "SM 1 leaves at once, as if it had never run",
       "partials_words",
       {{"", "  start_delay(cta);\n", "  if (cta.sm == 1)\n    return;\n"}}},
      {"late-sm",
       "SM 1 starts a second late, beyond the deadline",
       "partials_words",
       {{"", "  start_delay(cta);\n",
         "  if (cta.sm == 1)\n"
         "    for (const uint64_t until = platform::now_ns() + 1000000000;\n"
         "         platform::now_ns() < until;)\n"
         "      ;\n"}},
       // The host's clock stands still while anything runs.
       /*onHost=*/false},
      {"dead-rank",
       "rank 1 of two does nothing",
       "attn_words",
       {{"", "  start_delay(cta);\n", "  if (cta.rank == 1)\n    return;\n"}},
       /*onHost=*/true,
       /*tp=*/2},
      {"full-ring",
       "consumers never give a piece of the ring back",
       "w_free",
       {{"", "release<w_free>(cta);", ""}}},
      {"short-copy",
       "bulk copies bring 16 bytes less than is waited for",
       "w_full",
       {{"codegen/device/edges.cuh", "mbarrier_arrive_expect_tx(barrier, bytes + rest_bytes)",
         "mbarrier_arrive_expect_tx(barrier, bytes + rest_bytes + 16)"},
        {"codegen/device/stream.cuh", "mbarrier_arrive_expect_tx(barrier, expected)",
         "mbarrier_arrive_expect_tx(barrier, expected + 16)"}}},
  };
  return list;
}

/// Replaces every `from`; how many.
static int replaceAll(std::string &text, llvm::StringRef from, llvm::StringRef to) {
  int count = 0;
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
    ++count;
  }
  return count;
}

llvm::Expected<Planted> plant(const Fault &fault, llvm::StringRef source) {
  Planted planted{source.str(), {}};
  for (auto [name, text] : deviceHeaders())
    planted.headers[name.str()] = text.str();
  for (const Fault::Edit &edit : fault.edits) {
    std::string &text = *edit.file ? planted.headers[edit.file] : planted.source;
    if (replaceAll(text, edit.from, edit.to) == 0)
      return llvm::createStringError(llvm::Twine(fault.name) + ": expected '" + edit.from +
                                     "' in " + (*edit.file ? edit.file : "the kernel's source") +
                                     " but found none");
  }
  return planted;
}

llvm::StringRef namedEdge(llvm::StringRef said) {
  // "… for edge 15 'routed' (consumer -> …"
  return said.split("for edge ").second.split('\'').second.split('\'').first;
}

} // namespace megalith::test
