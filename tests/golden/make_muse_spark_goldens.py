"""Golden numbers of the small Muse Spark config, from an implementation that is not ours.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install 'mlx[cpu]' mlx-lm==0.32.2
    /tmp/venv/bin/python tests/golden/make_muse_spark_goldens.py

Writes tests/golden/models/muse_spark/mlx.safetensors (mlx-lm's `muse_spark`, float32):
"step{s}.layer{l}" and "step{s}.logits" of one sequence whose caches hold HISTORY made-up positions, in
the steps of STEPS. A golden is not rewritten where the old one agrees within 1e-6 relative RMS. Its
neighbours there are made by the NumPy model, tests/models/reference/muse_spark.py.

mlx-lm does six groups of operations with kernels for Apple GPUs, which do not exist on a CPU: those
six functions are replaced here by plain array expressions of what their doc strings say. All else,
the graph, the loading of the checkpoint's tensors, projections, experts, attention, masks and
caches, is mlx-lm's own. Casts to bf16 are switched off, as everywhere in these goldens.
"""

import json
import pathlib
import sys

import mlx.core as mx
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/models/reference"))
import muse_spark as spec  # noqa: E402  (the NumPy model)


def load_mlx_model():
    import mlx_lm.models.muse_spark as module

    class Float32Only:
        """mlx.core in which bf16 is float32."""

        bfloat16 = mx.float32

        def __getattr__(self, name):
            return getattr(mx, name)

    module.mx = Float32Only()

    def rms(x, eps):
        return x * mx.rsqrt(mx.mean(x * x, axis=-1, keepdims=True) + eps)

    def heads_of(qkvg, n_heads, n_kv_heads, head_dim):
        batch, rows, _ = qkvg.shape
        q = qkvg[..., : n_heads * head_dim].reshape(batch, rows, n_heads, head_dim)
        k = qkvg[..., n_heads * head_dim : (n_heads + n_kv_heads) * head_dim]
        return q, k.reshape(batch, rows, n_kv_heads, head_dim)

    def qk_norm(qkvg, *, n_heads, n_kv_heads, head_dim, eps, query_scale):
        q, k = heads_of(qkvg, n_heads, n_kv_heads, head_dim)
        return rms(q, eps) * query_scale, rms(k, eps)

    def qk_norm_rope(qkvg, *, rope_base, offset, head_dim, **rest):
        pair = qk_norm(qkvg, head_dim=head_dim, **rest)
        turn = lambda x: mx.fast.rope(
            x.transpose(0, 2, 1, 3), head_dim, traditional=True, base=rope_base, scale=1.0, offset=offset
        ).transpose(0, 2, 1, 3)
        return [turn(x) for x in pair]

    def rms_norm_sigmoid_gate(x, gate, *, eps):
        batch, heads, rows, dim = x.shape
        x = rms(x, eps).transpose(0, 2, 1, 3).reshape(batch, rows, heads * dim)
        return x * mx.sigmoid(gate)

    def pre_norm(stream, norm, *, dtype):
        return norm(stream)

    def norm_add_norm(branch, stream, *, alpha, beta, post_weight, post_eps, next_norm):
        branch = rms(branch if post_weight is None else branch * post_weight, post_eps)
        stream = alpha * stream + beta * branch
        return stream, None if next_norm is None else next_norm(stream)

    def expert_routing(logits, bias, *, top_k, multiplier, score_eps, route_scale):
        scores = mx.sigmoid(logits * multiplier)
        ids = mx.argsort(-(scores + bias), axis=-1)[..., :top_k]
        weights = mx.take_along_axis(scores, ids, axis=-1)
        total = weights.sum(axis=-1, keepdims=True) + score_eps
        return ids.astype(mx.uint32), weights / total * route_scale

    def post_expert_norm_combine(experts, weights, *, norm_weight, eps):
        return (rms(experts * norm_weight, eps) * weights[..., None]).sum(axis=-2)

    replacements = [qk_norm, qk_norm_rope, rms_norm_sigmoid_gate, pre_norm, norm_add_norm]
    for function in replacements + [expert_routing, post_expert_norm_combine]:
        assert hasattr(module, function.__name__), f"mlx-lm has no {function.__name__} any more"
        setattr(module, function.__name__, function)
    # Gains stay 1 + w where the model rounds them.
    module.norm_gain = lambda weight: 1.0 + weight.astype(mx.float32)
    return module


def checkpoint(config):
    """All tensors under their checkpoint names."""
    c, w = config["text_config"], spec.Weights(spec.SEED)
    h, latent, inner = c["hidden_size"], c["moe_hidden_size"], c["moe_intermediate_size"]
    q, kv = (c[n] * c["head_dim"] for n in ("num_attention_heads", "num_key_value_heads"))
    experts, vocab = c["num_local_experts"], c["vocab_size"]
    top = "model.language_model."
    tensors = {
        top + "embed_tokens.weight": w.tensor(top + "embed_tokens.weight", (vocab, h)),
        top + "norm.weight": w.absolute_gain(top + "norm.weight", h),
        "lm_head.weight": w.tensor("lm_head.weight", (vocab, h)),
    }
    for l in range(c["num_hidden_layers"]):
        p = f"{top}layers.{l}."
        for name, shape in {
            "self_attn.q_proj.weight": (q, h),
            "self_attn.k_proj.weight": (kv, h),
            "self_attn.v_proj.weight": (kv, h),
            "self_attn.gate_proj.weight": (q, h),
            "self_attn.o_proj.weight": (h, q),
            "mlp.gate.weight": (experts, h),
            "mlp.pre_expert_proj.weight": (latent, h),
            "mlp.experts.gate_up_proj": (experts, 2 * inner, latent),
            "mlp.experts.down_proj": (experts, latent, inner),
            "mlp.post_expert_proj.weight": (h, latent),
        }.items():
            tensors[p + name] = w.tensor(p + name, shape).reshape(shape)
        for name, width in {
            "input_layernorm.weight": h,
            "pre_feedforward_layernorm.weight": h,
            "post_feedforward_layernorm.weight": h,
            "mlp.pre_expert_norm.weight": latent,
            "mlp.experts.post_expert_norm.weight": latent,
        }.items():
            tensors[p + name] = w.centred_gain(p + name, width)
        name = p + "mlp.gate.e_score_correction_bias"
        tensors[name] = w.vector(name, experts)
        for side in ("attention", "feedforward"):
            name = f"{p}post_{side}_residual_gate.gate"
            tensors[name] = w.gate(name, h)
    return tensors


def run_mlx(config):
    module = load_mlx_model()
    model = module.Model(module.ModelArgs.from_dict(config))
    weights = {name: mx.array(value) for name, value in checkpoint(config).items()}
    model.load_weights(list(model.sanitize(weights).items()), strict=True)
    mx.eval(model.parameters())

    taps = []
    forward = module.TransformerBlock.__call__

    def tapped(self, *args, **kwargs):
        result = forward(self, *args, **kwargs)
        taps.append(result[0])
        return result

    module.TransformerBlock.__call__ = tapped
    c = config["text_config"]
    cache = model.make_cache()
    for l, entry in enumerate(cache):
        shape = (spec.HISTORY, c["num_key_value_heads"], c["head_dim"])
        k, v = (spec.history(spec.SEED, l, which, *shape) for which in "kv")
        # mlx-lm keeps keys with the pairs of RoPE side by side.
        k = k.reshape(*k.shape[:2], 2, -1).swapaxes(-1, -2).reshape(k.shape)
        entry.update_and_fetch(*(mx.array(x.transpose(1, 0, 2)[None]) for x in (k, v)))

    golden, first = {}, spec.HISTORY
    for step, rows in enumerate(spec.STEPS):
        taps.clear()
        ids = spec.tokens(spec.SEED, 0, first, rows, c["vocab_size"])
        logits = model(mx.array(ids)[None], cache=cache)
        for l, tap in enumerate(taps):
            golden[f"step{step}.layer{l}"] = np.array(tap[0])
        golden[f"step{step}.logits"] = np.array(logits[0])
        first += rows
    return golden


def difference(old, new):
    """The largest relative RMS over tensors; infinity where names or shapes differ."""
    if {k: v.shape for k, v in old.items()} != {k: v.shape for k, v in new.items()}:
        return float("inf")
    rms = lambda x: np.sqrt(np.mean(np.square(x.astype(np.float64))))
    return max(rms(new[k] - old[k]) / rms(old[k]) for k in new)


def main():
    mx.set_default_device(mx.cpu)
    config = json.loads((ROOT / "models/configs/muse-spark-mini.test.json").read_text())
    golden = run_mlx(config)
    numpy = {k: v for k, v in spec.Model(config).run().items() if k in golden}
    print(f"mlx and numpy differ by {difference(numpy, golden):.1e}")
    path = ROOT / "tests/golden/models/muse_spark/mlx.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        old = {k: np.array(v) for k, v in mx.load(str(path)).items()}
        changed = difference(old, golden)
        if changed <= 1e-6:
            print(f"{path.relative_to(ROOT)}: unchanged (relative RMS {changed:.1e})")
            return
        print(f"{path.relative_to(ROOT)}: changed by relative RMS {changed:.1e}")
    spec.write_safetensors(path, golden)
    print(f"{path.relative_to(ROOT)}: written, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
