// Wrong configs: each is refused with one line that says where, what was expected, what was found
// and how to mend it.

#include "models/Import.h"
#include "tests/models/Configs.h"

#include "mlir/IR/MLIRContext.h"

#include <catch2/catch.hpp>

using namespace megalith::models;
using namespace megalith::models::test;

namespace {

/// A change to a good config, and what the message must say.
struct Refusal {
  const char *what;   ///< for the reader of a failure
  const char *config; ///< the good config
  const char *fields; ///< set, as the inside of a JSON object
  const char *removed;
  const char *where;    ///< JSON path
  const char *expected; ///< after "expected "
  const char *got;      ///< after " but got "
  const char *mend;     ///< after "; "
};

constexpr const char *kQwen = "qwen3-30b-a3b";
constexpr const char *kMixtral = "mixtral-8x7b";
constexpr const char *kAdd = "add the field from the model's config.json";
constexpr const char *kCorrect = "correct the value";
constexpr const char *kUnquote = "write it without quotes";
constexpr const char *kOneOfTwo = "correct one of the two";

const Refusal kRefusals[] = {
    // Which model it is.
    {"unknown model type", kQwen, R"("model_type": "llama")", "", "$.model_type",
     "one of mixtral, muse_spark, qwen3_moe", R"("llama")", "give the config.json of a model"},
    {"no model type", kQwen, "", "model_type", "$.model_type",
     "one of mixtral, muse_spark, qwen3_moe", "nothing", "give the config.json of a model"},
    {"model type not a string", kQwen, R"("model_type": 3)", "", "$.model_type",
     "one of mixtral, muse_spark, qwen3_moe", "3", "give the config.json of a model"},
    {"contradictory architecture", kQwen, R"("architectures": ["MixtralForCausalLM"])", "",
     "$.architectures", R"(["Qwen3MoeForCausalLM"])", R"(["MixtralForCausalLM"])",
     "contradict each other"},
    {"another head on the model", kMixtral,
     R"("architectures": ["MixtralForSequenceClassification"])", "", "$.architectures",
     R"(["MixtralForCausalLM"])", R"(["MixtralForSequenceClassification"])",
     "contradict each other"},

    // Missing.
    {"no hidden size", kQwen, "", "hidden_size", "$.hidden_size", "an integer from 1 to 1048576",
     "nothing", kAdd},
    {"no layer count", kMixtral, "", "num_hidden_layers", "$.num_hidden_layers",
     "an integer from 1 to 1000", "nothing", kAdd},
    {"no query heads", kQwen, "", "num_attention_heads", "$.num_attention_heads",
     "an integer from 1 to 4096", "nothing", kAdd},
    {"no KV heads", kMixtral, "", "num_key_value_heads", "$.num_key_value_heads",
     "an integer from 1 to 4096", "nothing", kAdd},
    {"no experts (qwen)", kQwen, "", "num_experts", "$.num_experts", "an integer from 1 to 4096",
     "nothing", kAdd},
    {"no experts (mixtral)", kMixtral, "", "num_local_experts", "$.num_local_experts",
     "an integer from 1 to 4096", "nothing", kAdd},
    {"no top k", kQwen, "", "num_experts_per_tok", "$.num_experts_per_tok",
     "an integer from 1 to 4096", "nothing", kAdd},
    {"no expert width (qwen)", kQwen, "", "moe_intermediate_size", "$.moe_intermediate_size",
     "an integer from 1 to 1048576", "nothing", kAdd},
    {"no expert width (mixtral)", kMixtral, "", "intermediate_size", "$.intermediate_size",
     "an integer from 1 to 1048576", "nothing", kAdd},
    {"no vocabulary", kQwen, "", "vocab_size", "$.vocab_size", "an integer from 1 to 16777216",
     "nothing", kAdd},
    {"no positions", kMixtral, "", "max_position_embeddings", "$.max_position_embeddings",
     "an integer from 1 to 134217728", "nothing", kAdd},
    {"null where a number must be", kQwen, R"("hidden_size": null)", "", "$.hidden_size",
     "an integer from 1 to 1048576", "null", kAdd},

    // Of the wrong type.
    {"a quoted number", kQwen, R"("hidden_size": "2048")", "", "$.hidden_size",
     "an integer from 1 to 1048576", R"("2048")", kUnquote},
    {"a fraction", kQwen, R"("num_hidden_layers": 48.5)", "", "$.num_hidden_layers",
     "an integer from 1 to 1000", "48.5", kCorrect},
    {"a list", kMixtral, R"("num_local_experts": [8])", "", "$.num_local_experts",
     "an integer from 1 to 4096", "[8]", kCorrect},
    {"a boolean", kMixtral, R"("vocab_size": true)", "", "$.vocab_size",
     "an integer from 1 to 16777216", "true", kCorrect},
    {"an object", kQwen, R"("head_dim": {"q": 128})", "", "$.head_dim", "an integer from 1 to 1024",
     R"({"q":128})", kCorrect},
    {"a quoted boolean", kQwen, R"("norm_topk_prob": "true")", "", "$.norm_topk_prob",
     "true or false", R"("true")", kCorrect},
    {"a quoted eps", kQwen, R"("rms_norm_eps": "1e-6")", "", "$.rms_norm_eps",
     "a finite number above 0", R"("1e-6")", kUnquote},
    {"rope parameters not an object", kQwen, R"("rope_parameters": 1e6)", "rope_theta",
     "$.rope_parameters", "an object", "1000000", kCorrect},

    // Absurd.
    {"zero width", kQwen, R"("hidden_size": 0)", "", "$.hidden_size",
     "an integer from 1 to 1048576", "0", kCorrect},
    {"negative heads", kQwen, R"("num_attention_heads": -32)", "", "$.num_attention_heads",
     "an integer from 1 to 4096", "-32", kCorrect},
    {"a trillion channels", kMixtral, R"("hidden_size": 1000000000000)", "", "$.hidden_size",
     "an integer from 1 to 1048576", "1000000000000", kCorrect},
    {"beyond 64 bits", kMixtral, R"("vocab_size": 1e30)", "", "$.vocab_size",
     "an integer from 1 to 16777216", "1e+30", kCorrect},
    {"zero KV heads", kQwen, R"("num_key_value_heads": 0)", "", "$.num_key_value_heads",
     "an integer from 1 to 4096", "0", kCorrect},
    {"zero top k", kMixtral, R"("num_experts_per_tok": 0)", "", "$.num_experts_per_tok",
     "an integer from 1 to 4096", "0", kCorrect},
    {"no eps at all", kQwen, R"("rms_norm_eps": 0)", "", "$.rms_norm_eps",
     "a finite number above 0", "0", kCorrect},
    {"negative eps", kMixtral, R"("rms_norm_eps": -1e-5)", "", "$.rms_norm_eps",
     "a finite number above 0", "-1e-05", kCorrect},
    {"negative theta", kQwen, R"("rope_theta": -1.0)", "", "$.rope_theta",
     "a finite number above 0", "-1", kCorrect},
    {"ten thousand layers", kQwen, R"("num_hidden_layers": 10000)", "", "$.num_hidden_layers",
     "an integer from 1 to 1000", "10000", kCorrect},

    // Contradictory.
    {"heads not in groups", kQwen, R"("num_key_value_heads": 5)", "", "$.num_key_value_heads",
     "a divisor of num_attention_heads 32", "5", kOneOfTwo},
    {"more KV heads than heads", kMixtral, R"("num_key_value_heads": 64)", "",
     "$.num_key_value_heads", "a divisor of num_attention_heads 32", "64", kOneOfTwo},
    {"top k above the experts (qwen)", kQwen, R"("num_experts_per_tok": 129)", "",
     "$.num_experts_per_tok", "at most num_experts 128", "129", kOneOfTwo},
    {"top k above the experts (mixtral)", kMixtral, R"("num_experts_per_tok": 9)", "",
     "$.num_experts_per_tok", "at most num_local_experts 8", "9", kOneOfTwo},
    {"odd heads", kQwen, R"("head_dim": 127)", "", "$.head_dim", "an even width", "127", kCorrect},
    {"heads that do not divide the width", kMixtral, R"("hidden_size": 4100)", "", "$.head_dim",
     "a value, as num_attention_heads does not divide hidden_size", "nothing", kAdd},
    {"two thetas", kQwen, R"("rope_parameters": {"rope_theta": 5e6})", "",
     "$.rope_parameters.rope_theta", "1000000", "5000000", "remove one of the two"},

    // Unsupported, by name.
    {"another activation", kQwen, R"("hidden_act": "gelu")", "", "$.hidden_act", R"("silu")",
     R"("gelu")", "only SwiGLU experts are supported"},
    {"another activation (mixtral)", kMixtral, R"("hidden_act": "relu")", "", "$.hidden_act",
     R"("silu")", R"("relu")", "only SwiGLU experts are supported"},
    {"dense layers by list", kQwen, R"("mlp_only_layers": [0, 1])", "", "$.mlp_only_layers", "[]",
     "[0,1]", "a dense layer among the layers of experts is not supported"},
    {"dense layers by step", kQwen, R"("decoder_sparse_step": 2)", "", "$.decoder_sparse_step", "1",
     "2", "a dense layer among the layers of experts is not supported"},
    {"sliding window (qwen)", kQwen, R"("use_sliding_window": true, "sliding_window": 4096)", "",
     "$.use_sliding_window", "false", "true", "sliding-window attention is not supported"},
    {"sliding window (mixtral)", kMixtral, R"("sliding_window": 4096)", "", "$.sliding_window",
     "null", "4096", "sliding-window attention is not supported"},
    {"scaled RoPE", kQwen, R"("rope_scaling": {"type": "yarn", "factor": 4.0})", "",
     "$.rope_scaling", "null", R"({"factor":4,"type":"yarn"})", "RoPE scaling is not supported"},
    {"scaled RoPE in the new spelling", kQwen,
     R"("rope_parameters": {"rope_type": "yarn", "factor": 4.0})", "",
     "$.rope_parameters.rope_type", R"("default")", R"("yarn")", "RoPE scaling is not supported"},
    {"tied head", kMixtral, R"("tie_word_embeddings": true)", "", "$.tie_word_embeddings", "false",
     "true", "a head tied to the embedding is not supported"},
    {"attention bias", kQwen, R"("attention_bias": true)", "", "$.attention_bias", "false", "true",
     "bias in the attention projections is not supported"},
    {"quantised", kQwen, R"("quantization_config": {"quant_method": "fp8"})", "",
     "$.quantization_config", "null", R"({"quant_method":"fp8"})",
     "a quantised checkpoint is not supported"},
    {"half precision", kMixtral, R"("torch_dtype": "float16")", "", "$.torch_dtype",
     R"("bfloat16")", R"("float16")", "convert the checkpoint to bfloat16"},
    {"a field nobody knows", kQwen, R"("shared_expert_intermediate_size": 1024)", "",
     "$.shared_expert_intermediate_size", "only fields known for qwen3_moe", "1024",
     "remove it or begin its name with '_'"},
    {"a slip in a field's name", kMixtral, R"("rms_norm_esp": 1e-6)", "", "$.rms_norm_esp",
     "only fields known for mixtral", "1e-06", "remove it or begin its name with '_'"},
    {"a field nobody knows, nested", kQwen, R"("rope_parameters": {"factor": 4.0})", "",
     "$.rope_parameters.factor", "only fields known for default rope_parameters", "4",
     "remove it or begin its name with '_'"},
};

/// The message for `text`, which must be refused, by both entry points alike.
std::string refusal(const std::string &text, ImportOptions options = {}) {
  mlir::MLIRContext context;
  auto module = importConfig(context, text, "dir/config.json", options);
  REQUIRE_FALSE(bool(module));
  return llvm::toString(module.takeError());
}

void checkLine(const std::string &message) {
  CHECK(message.find('\n') == std::string::npos);
  CHECK(message.size() < 300);
}

} // namespace

TEST_CASE("wrong fields") {
  CHECK(std::size(kRefusals) >= 40);
  for (const Refusal &r : kRefusals) {
    DYNAMIC_SECTION(r.what) {
      std::string text = changed(r.config, r.fields, r.removed);
      std::string message = refusal(text);
      INFO(message);
      checkLine(message);
      // The parts stand in this order and next to one another.
      std::string start = std::string("dir/config.json: ") + r.where + ": expected " + r.expected;
      CHECK(message.compare(0, start.size(), start) == 0);
      size_t got = message.find(std::string(" but got ") + r.got, start.size());
      REQUIRE(got != std::string::npos);
      size_t semicolon = message.find("; ", got);
      REQUIRE(semicolon != std::string::npos);
      CHECK(message.find(r.mend, semicolon) != std::string::npos);

      auto parsed = parseConfig(text, "dir/config.json");
      REQUIRE_FALSE(bool(parsed));
      CHECK(llvm::toString(parsed.takeError()) == message);
    }
  }
}

TEST_CASE("text that is no JSON object") {
  struct Case {
    std::string text;
    const char *expected;
    const char *mend;
  };
  std::string good = configText(kQwen);
  std::string nested = std::string(R"({"model_type": "mixtral", "a": )") +
                       std::string(100000, '[') + std::string(100000, ']') + "}";
  const Case cases[] = {
      {"", "a complete JSON object", "complete the file or fetch it again"},
      {"{", "a complete JSON object", "complete the file or fetch it again"},
      {good.substr(0, good.size() / 2), "a complete JSON object",
       "complete the file or fetch it again"},
      {good.substr(0, good.rfind('}')), "a complete JSON object",
       "complete the file or fetch it again"},
      {good + "}", "a complete JSON object", "complete the file or fetch it again"},
      {R"({"hidden_size": 20 48})", "at line 1, column 20", "complete the file"},
      {"{\"hidden_size\": \"\xff\xfe\"}", "a complete JSON object", "complete the file"},
      {R"({"hidden_size": NaN})", "a complete JSON object", "complete the file"},
      {"[1, 2]", "a JSON object but got [1,2]", "give the model's config.json"},
      {"null", "a JSON object but got null", "give the model's config.json"},
      {nested, "nesting of at most 64 levels", "give the model's config.json"},
      {"version https://git-lfs.github.com/spec/v1\n", "a complete JSON object", "fetch it again"},
  };
  for (const Case &c : cases) {
    INFO(c.text.substr(0, 80));
    std::string message = refusal(c.text);
    INFO(message);
    checkLine(message);
    CHECK(message.find("dir/config.json: $: expected ") == 0);
    CHECK(message.find(c.expected) != std::string::npos);
    CHECK(message.find(c.mend) != std::string::npos);
  }
}

TEST_CASE("a config cut short anywhere") {
  std::string good = configText(kMixtral);
  good = good.substr(0, good.rfind('}') + 1);
  for (size_t length = 0; length < good.size(); ++length) {
    auto config = parseConfig(llvm::StringRef(good).take_front(length), "cut.json");
    INFO(length);
    REQUIRE_FALSE(bool(config));
    std::string message = llvm::toString(config.takeError());
    REQUIRE(message.find(
                "cut.json: $: expected a complete JSON object but got an error at line ") == 0);
  }
}

TEST_CASE("a number beyond every range") {
  std::string text = configText(kQwen);
  size_t at = text.find("1e-06");
  REQUIRE(at != std::string::npos);
  CHECK(refusal(text.replace(at, 5, "1e999"))
            .find("$.rms_norm_eps: expected a finite number above 0 but got inf") !=
        std::string::npos);
}

TEST_CASE("fields with odd names stay within the line") {
  std::string message = refusal(changed(kQwen, R"("a\nb c": 1)"));
  checkLine(message);
  CHECK(message.find(R"($["a\nb c"]: expected only fields known for qwen3_moe but got 1)") !=
        std::string::npos);
  checkLine(refusal(changed(kQwen, "\"" + std::string(5000, 'k') + "\": 1")));
  checkLine(refusal(changed(kQwen, "\"\": 1")));
}

TEST_CASE("a field that occurs twice") {
  std::string twice = R"({"hidden_size": 1024, )" + configText(kQwen).substr(1);
  CHECK(refusal(twice) == "dir/config.json: $.hidden_size: expected the field once but got it "
                          "twice; remove one of the two");
  std::string escaped = R"({"hidden\u005fsize": 1024, )" + configText(kQwen).substr(1);
  CHECK(refusal(escaped) == refusal(twice));
  std::string inner = R"({"_a": [{"b": {"c": 1, "c": 2}}], )" + configText(kQwen).substr(1);
  CHECK(refusal(inner).find("$._a[].b.c: expected the field once") != std::string::npos);
}

TEST_CASE("the first error alone is reported") {
  std::string message =
      refusal(changed(kQwen, R"("hidden_size": 0, "num_hidden_layers": 0, "hidden_act": "gelu")"));
  CHECK(message.find("$.hidden_size") != std::string::npos);
  CHECK(message.find("hidden_act") == std::string::npos);
}

TEST_CASE("long values are cut short, between characters") {
  std::string umlauts;
  for (int i = 0; i < 200; ++i)
    umlauts += "\xc3\xbc";
  std::string message = refusal(changed(kQwen, R"("hidden_act": ")" + umlauts + "\""));
  checkLine(message);
  CHECK(message.find("\xbc...") != std::string::npos);
}

TEST_CASE("options out of range") {
  std::string good = configText(kQwen);
  CHECK(refusal(good, {0, 0}) == "dir/config.json: rows: expected 1 to 16 but got 0; choose the "
                                 "most rows that a step will have");
  CHECK(refusal(good, {17, 0}).find("rows: expected 1 to 16 but got 17") != std::string::npos);
  CHECK(refusal(good, {1, 40961})
            .find("max_position_embeddings 40960 (0 for the latter) but got "
                  "40961; choose a smaller context") != std::string::npos);
  CHECK(refusal(good, {1, -1}).find("but got -1") != std::string::npos);
}
