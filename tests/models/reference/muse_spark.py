"""Muse Spark Open's text decoder in NumPy, written from docs/spec/muse-spark-open.md alone.

It imports nothing of the project, so that what it says is a second opinion; numbers in comments are
the steps of the specification's section 4. `Model(config, ...).run(...)` evaluates in float64, or with
`rounded` in float32 with bf16 at every point that the specification marks; with `nvfp4` the experts of
all layers but the first and the last have NVFP4 weights, with `act` they read NVFP4 as well.

Run as a program it writes the golden numbers of the small config (those that need only NumPy):

    python3 tests/models/reference/muse_spark.py
"""

import json
import pathlib
import struct

import numpy as np

SEED = 1
# The hash makes gates small; times this they reach beyond the clamp of the residual gate (section 3).
GATE_FACTOR = 64.0
# Positions in the caches before the first step, and the rows of each step: the window of 256 is
# crossed, alone and within a step.
HISTORY = 254
STEPS = [1, 3, 2]

# --- hashed weights (docs: DESIGN section 5), by code of its own ----------------------------------


def fnv1a(text):
    value = 2166136261
    for byte in text.encode():
        value = ((value ^ byte) * 16777619) % 2**32
    return value


def words(seed, name, first, count):
    """Word 0 of Philox4x32-10 for the counters first .. first + count - 1, as uint64."""
    low32 = np.uint64(0xFFFFFFFF)
    index = np.arange(first, first + count, dtype=np.uint64)
    a, b = index & low32, index >> np.uint64(32)
    c = d = np.zeros_like(index)
    keys = [seed, fnv1a(name)]
    for _ in range(10):
        left, right = np.uint64(0xD2511F53) * a, np.uint64(0xCD9E8D57) * c
        a, b, c, d = (
            (right >> np.uint64(32)) ^ b ^ np.uint64(keys[0]),
            right & low32,
            (left >> np.uint64(32)) ^ d ^ np.uint64(keys[1]),
            left & low32,
        )
        keys = [(keys[0] + 0x9E3779B9) % 2**32, (keys[1] + 0xBB67AE85) % 2**32]
    return a


def bf16(x):
    """Nearest bf16, ties to even, of finite numbers."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32).astype(np.uint64)
    bits = (bits + np.uint64(0x7FFF) + ((bits >> np.uint64(16)) & np.uint64(1))) & np.uint64(0xFFFF0000)
    return bits.astype(np.uint32).view(np.float32)


def hashed(seed, name, first, count, scale):
    u = (words(seed, name, first, count) >> np.uint64(8)).astype(np.float64) / 2.0**24
    return bf16((2 * u - 1) * scale)


class Weights:
    """The checkpoint, made up. A matrix has the scale 2^round(log2 sqrt(3 / K)), a gain 2^-4."""

    def __init__(self, seed):
        self.seed = seed

    def tensor(self, name, shape, rows=None):
        """Rows rows[0] .. rows[1] - 1 of the flattened leading dimensions; all by default."""
        width = shape[-1]
        total = int(np.prod(shape[:-1], dtype=np.int64))
        begin, end = rows or (0, total)
        exponent = np.log2(np.sqrt(3.0 / width))
        scale = 2.0 ** (np.sign(exponent) * np.floor(abs(exponent) + 0.5))
        flat = hashed(self.seed, name, begin * width, (end - begin) * width, scale)
        return flat.reshape(end - begin, width)

    def vector(self, name, width):
        return self.tensor(name, (width,))[0]

    def centred_gain(self, name, width):
        return hashed(self.seed, name, 0, width, 2.0**-4)

    def absolute_gain(self, name, width):
        return bf16(np.float32(1) + self.centred_gain(name, width))

    def gate(self, name, width):
        return self.vector(name, width) * np.float32(GATE_FACTOR)


def tokens(seed, sequence, first, count, vocab):
    return (words(seed, "tokens", (sequence << 20) + first, count) % np.uint64(vocab)).astype(np.int64)


def history(seed, layer, which, count, heads, dim):
    """Made-up keys ("k") or values ("v") of sequence 0: [count, heads, dim]."""
    return hashed(seed, f"kv.{layer}.{which}", 0, count * heads * dim, 1.0).reshape(count, heads, dim)


# --- NVFP4 (section 7.2), codes as values ---------------------------------------------------------

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
# Calibrated largest activation of made-up checkpoints: input_scale = 8 / (6 * 448).
ACTIVATION_MAX = 8.0


def e4m3(x):
    """Nearest e4m3 of numbers of at least 0, ties to even, at most 448; the least instead of 0."""
    x = np.minimum(x, 448.0)
    exponent = np.maximum(np.floor(np.log2(np.maximum(x, 2.0**-20))), -6)
    step = 2.0 ** (exponent - 3)
    return np.maximum(np.round(x / step) * step, 2.0**-9)


def nvfp4(x, factor):
    """code * block scale of x [..., K], whose global factor is `factor`; all in float32."""
    x = np.asarray(x, np.float32)
    factor = np.float32(factor)
    blocks = x.reshape(*x.shape[:-1], -1, 16)
    amax = np.abs(blocks).max(axis=-1, keepdims=True)
    scale = np.where(amax == 0, np.float32(1), e4m3(amax / (np.float32(6) * factor)).astype(np.float32))
    ratio = np.abs(blocks / (scale * factor))
    # Thresholds between neighbouring codes; a tie goes to the even code.
    bounds = (E2M1[1:] + E2M1[:-1]) / 2
    code = sum((ratio > b) | ((ratio == b) & (i % 2 == 1)) for i, b in enumerate(bounds))
    return (np.sign(blocks) * E2M1[code] * scale).reshape(x.shape)


# --- the model ------------------------------------------------------------------------------------


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


class Model:
    def __init__(self, config, seed=SEED, rounded=False, layers=None, nvfp4=False, act=False):
        self.nvfp4, self.act = nvfp4, act
        self.c = config["text_config"]
        self.w = Weights(seed)
        self.seed = seed
        self.layers = layers or self.c["num_hidden_layers"]
        self.rounded = rounded
        self.dtype = np.float32 if rounded else np.float64
        self.loaded = {}

    # Section 2.
    def r16(self, x):
        return bf16(x) if self.rounded else x

    def rms(self, x, eps):
        x = x.astype(self.dtype)
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.dtype(eps))

    def one_plus(self, name, width):
        gain = self.dtype(1) + self.w.centred_gain(name, width).astype(self.dtype)
        return self.r16(gain)

    def linear(self, x, weight):
        return self.r16(x.astype(self.dtype) @ weight.astype(self.dtype).T)

    def layer_weights(self, l):
        if l in self.loaded:
            return self.loaded[l]
        c, w, p = self.c, self.w, f"model.language_model.layers.{l}."
        h, latent, inner = c["hidden_size"], c["moe_hidden_size"], c["moe_intermediate_size"]
        q = c["num_attention_heads"] * c["head_dim"]
        kv = c["num_key_value_heads"] * c["head_dim"]
        experts = c["num_local_experts"]
        a, m = p + "self_attn.", p + "mlp."
        layer = {
            "in": self.one_plus(p + "input_layernorm.weight", h),
            "ff": self.one_plus(p + "pre_feedforward_layernorm.weight", h),
            "post_ff": self.one_plus(p + "post_feedforward_layernorm.weight", h),
            "pre_expert": self.one_plus(m + "pre_expert_norm.weight", latent),
            "post_expert": self.one_plus(m + "experts.post_expert_norm.weight", latent),
            "q": w.tensor(a + "q_proj.weight", (q, h)),
            "k": w.tensor(a + "k_proj.weight", (kv, h)),
            "v": w.tensor(a + "v_proj.weight", (kv, h)),
            "g": w.tensor(a + "gate_proj.weight", (q, h)),
            "o": w.tensor(a + "o_proj.weight", (h, q)),
            "router": w.tensor(m + "gate.weight", (experts, h)),
            "bias": w.vector(m + "gate.e_score_correction_bias", experts),
            "pool": w.tensor(m + "pre_expert_proj.weight", (latent, h)),
            "unpool": w.tensor(m + "post_expert_proj.weight", (h, latent)),
            "gate1": self.coefficients(w.gate(p + "post_attention_residual_gate.gate", h)),
            "gate2": self.coefficients(w.gate(p + "post_feedforward_residual_gate.gate", h)),
        }
        self.loaded[l] = layer
        return layer

    def expert_weights(self, l, e):
        if (l, e) not in self.loaded:
            c = self.c
            latent, inner = c["moe_hidden_size"], c["moe_intermediate_size"]
            p = f"model.language_model.layers.{l}.mlp.experts."
            both = self.w.tensor(
                p + "gate_up_proj",
                (c["num_local_experts"], 2 * inner, latent),
                (e * 2 * inner, (e + 1) * 2 * inner),
            )
            down = self.w.tensor(
                p + "down_proj",
                (c["num_local_experts"], latent, inner),
                (e * latent, (e + 1) * latent),
            )
            if self.is_coded(l):
                both, down = (nvfp4(w, self.factor(w.shape[1])) for w in (both, down))
            self.loaded[l, e] = both[:inner], both[inner:], down
        return self.loaded[l, e]

    def is_coded(self, l):
        return self.nvfp4 and 0 < l < self.c["num_hidden_layers"] - 1

    def factor(self, width):
        """weight_scale_2 of a made-up matrix, whose largest magnitude is its scale."""
        exponent = np.log2(np.sqrt(3.0 / width))
        return 2.0 ** (np.sign(exponent) * np.floor(abs(exponent) + 0.5)) / 2688

    def expert_linear(self, l, x, weight):
        if not self.is_coded(l):
            return self.linear(x, weight)
        factor = np.float32(self.factor(weight.shape[1]))
        if self.act:  # section 7.3
            given = np.float32(ACTIVATION_MAX / 2688)
            x, factor = nvfp4(x, given), given * factor
        return self.r16((x.astype(self.dtype) @ weight.astype(self.dtype).T) * self.dtype(factor))

    # Section 3.
    def coefficients(self, gate):
        u = gate.astype(self.dtype) / self.dtype(self.c["residual_gate_temperature"])
        beta = sigmoid(u)
        alpha = np.sqrt(np.maximum(sigmoid(-u) * (1 + sigmoid(u)), self.dtype(1e-3)))
        return alpha, beta

    def rope(self, x, positions, theta):
        """Rotates the pairs (j, j + D/2) of every head; x [rows, heads, D]."""
        half = x.shape[-1] // 2
        frequency = theta ** (-2.0 * np.arange(half) / (2 * half))
        angle = (positions[:, None].astype(self.dtype) * frequency.astype(self.dtype))[:, None, :]
        cosine, sine = np.cos(angle), np.sin(angle)
        a, b = x[..., :half], x[..., half:]
        return self.r16(np.concatenate([a * cosine - b * sine, b * cosine + a * sine], axis=-1))

    def attention(self, l, w, x, positions, cache):
        c = self.c
        heads, kv_heads, dim = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        rows = len(x)
        eps = c["rms_norm_eps"]
        q = self.linear(x, w["q"]).reshape(rows, heads, dim)  # 1
        k = self.linear(x, w["k"]).reshape(rows, kv_heads, dim)
        v = self.linear(x, w["v"]).reshape(rows, kv_heads, dim)
        g = self.linear(x, w["g"]).reshape(rows, heads, dim)
        q, k = self.r16(self.rms(q, eps)), self.r16(self.rms(k, eps))  # 2
        theta = c["layer_rope_theta"][l]
        if theta:  # 3
            q, k = self.rope(q, positions, theta), self.rope(k, positions, theta)
        cache["k"] = np.concatenate([cache["k"], k])  # 4
        cache["v"] = np.concatenate([cache["v"], v])
        scale = c["qk_scale_factor"] / np.sqrt(dim)
        sliding = c["layer_types"][l] == "sliding_attention"
        o = np.zeros((rows, heads, dim), self.dtype)
        for r, position in enumerate(positions):  # 5
            first = max(0, position - c["sliding_window"] + 1) if sliding else 0
            keys = cache["k"][first : position + 1].astype(self.dtype)
            values = cache["v"][first : position + 1].astype(self.dtype)
            for h in range(heads):
                kv = h // (heads // kv_heads)
                score = (keys[:, kv] @ q[r, h].astype(self.dtype)) * self.dtype(scale)
                p = np.exp(score - score.max())
                o[r, h] = (p / p.sum()) @ values[:, kv]
        o = self.rms(o, eps)  # 6
        return self.r16((o * sigmoid(g.astype(self.dtype))).reshape(rows, heads * dim))  # 7

    def experts(self, l, w, x):
        c = self.c
        k = c["num_experts_per_tok"]
        z = x.astype(self.dtype) @ w["router"].astype(self.dtype).T  # 11
        p = sigmoid(z * self.dtype(c["output_multiplier"]))
        order = np.argsort(-(p + w["bias"].astype(self.dtype)), axis=-1, kind="stable")[:, :k]
        chosen = np.take_along_axis(p, order, axis=-1)
        weights = chosen / (chosen.sum(axis=-1, keepdims=True) + self.dtype(1e-15))
        weights = weights * self.dtype(c["routed_scaling_factor"])
        h = self.linear(x, w["pool"])  # 12
        h = self.r16(self.rms(h, c["rms_norm_eps"]) * w["pre_expert"])  # 13
        self.routed = weights
        m = np.zeros((len(x), c["moe_hidden_size"]), self.dtype)
        for r in range(len(x)):
            for slot in range(k):
                gate_rows, up_rows, down_rows = self.expert_weights(l, order[r, slot])
                gate = self.expert_linear(l, h[r : r + 1], gate_rows).astype(self.dtype)  # 14
                up = self.expert_linear(l, h[r : r + 1], up_rows).astype(self.dtype)
                act = self.r16(gate * sigmoid(gate) * up)
                y = self.expert_linear(l, act, down_rows)
                t = self.r16(y.astype(self.dtype) * w["post_expert"])  # 15
                m[r] += weights[r, slot] * self.rms(t, c["post_norm_eps"])[0]  # 16
        return self.linear(self.r16(m), w["unpool"])  # 17

    def layer(self, l, s, positions, cache):
        c, w = self.c, self.layer_weights(l)
        x = self.r16(self.rms(s, c["rms_norm_eps"]) * w["in"])
        a = self.linear(self.attention(l, w, x, positions, cache), w["o"])  # 8
        alpha, beta = w["gate1"]
        s = alpha * s + beta * self.r16(self.rms(a, c["post_norm_eps"]))  # 9
        x = self.r16(self.rms(s, c["rms_norm_eps"]) * w["ff"])  # 10
        f = self.experts(l, w, x)
        t = self.r16(f.astype(self.dtype) * w["post_ff"])  # 18
        alpha, beta = w["gate2"]
        return alpha * s + beta * self.r16(self.rms(t, c["post_norm_eps"]))

    def head(self, s):
        c = self.c
        gain = self.w.absolute_gain("model.language_model.norm.weight", c["hidden_size"])
        x = self.r16(self.rms(self.r16(s), c["rms_norm_eps"]) * gain)  # 20
        table = self.w.tensor("lm_head.weight", (c["vocab_size"], c["hidden_size"]))
        z = x.astype(self.dtype) @ table.astype(self.dtype).T  # 21
        cap = self.dtype(c["final_logit_softcapping"])
        return cap * np.tanh(z * self.dtype(c["output_multiplier"]) / cap)

    def embed(self, ids):
        c = self.c
        shape = (c["vocab_size"], c["hidden_size"])
        name = "model.language_model.embed_tokens.weight"
        rows = [self.w.tensor(name, shape, (i, i + 1))[0] for i in ids]
        return self.r16(self.rms(np.array(rows), c["rms_norm_eps"])).astype(self.dtype)

    def run(self, steps=STEPS, past=HISTORY):
        """{"step{s}.layer{l}": the stream after layer l, "step{s}.weights{l}": those of its experts in
        order, "step{s}.logits"} of one sequence."""
        c = self.c
        shape = (past, c["num_key_value_heads"], c["head_dim"])
        caches = [
            {which: history(self.seed, l, which, *shape).astype(self.dtype) for which in "kv"}
            for l in range(self.layers)
        ]
        out, first = {}, past
        for step, rows in enumerate(steps):
            positions = np.arange(first, first + rows)
            s = self.embed(tokens(self.seed, 0, first, rows, c["vocab_size"]))
            for l in range(self.layers):
                s = self.layer(l, s, positions, caches[l])
                out[f"step{step}.layer{l}"] = s
                out[f"step{step}.weights{l}"] = self.routed
            if self.layers == c["num_hidden_layers"]:
                out[f"step{step}.logits"] = self.head(s)
            first += rows
        return out


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, value in sorted(tensors.items()):
        value = np.ascontiguousarray(value, dtype="<f4")
        offsets = [len(data), len(data) + value.nbytes]
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": offsets}
        data += value.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


# Names of the goldens and how they are made. Those of NVFP4 have one step.
VARIANTS = {
    "numpy": (dict(), STEPS),
    "rounded": (dict(rounded=True), STEPS),
    "w4a16": (dict(nvfp4=True), STEPS[:1]),
    "w4a4": (dict(nvfp4=True, act=True), STEPS[:1]),
}


def main():
    root = pathlib.Path(__file__).resolve().parents[3]
    config = json.loads((root / "models/configs/muse-spark-mini.test.json").read_text())
    for name, (how, steps) in VARIANTS.items():
        path = root / f"tests/golden/models/muse_spark/{name}.safetensors"
        write_safetensors(path, Model(config, **how).run(steps))
        print(f"{path.relative_to(root)}: written, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
