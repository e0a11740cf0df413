"""Golden numbers of small random models, from an implementation that is not ours (mlx-lm, float32).

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install 'mlx[cpu]' mlx-lm
    /tmp/venv/bin/python tests/golden/make_model_goldens.py

For each config in CONFIGS it fills the model with hashed weights (models/weights/philox.py, seed
1), runs one sequence of hashed tokens through it in the steps of STEPS and writes
tests/golden/models/<model_type>/golden.safetensors: per step s "step{s}.layer{l}", the residual stream after each
layer [rows, hidden], and "step{s}.logits" [rows, vocab]; "steps" holds the rows of each step.
Floats are not reproducible to the last bit across machines, so a golden is not rewritten where the
old one agrees within 1e-6 relative RMS; what changes is printed.
"""

import json
import pathlib
import sys

import mlx.core as mx
import numpy as np
from mlx_lm.models import mixtral, qwen3_moe
from mlx_lm.models.cache import make_prompt_cache

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from models.weights import philox  # noqa: E402

SEED = 1
STEPS = [37, 1, 1, 2]  # a prompt over three blocks of 16, two decodes, one step of two rows
CONFIGS = ["qwen3-moe-small.test.json", "mixtral-small.test.json"]
MODULES = {"qwen3_moe": qwen3_moe, "mixtral": mixtral}


def checkpoint_shapes(config):
    """Checkpoint tensor name -> shape, as the family's published checkpoints have them."""
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim", hidden // heads)
    qwen = config["model_type"] == "qwen3_moe"
    inner = config["moe_intermediate_size" if qwen else "intermediate_size"]
    experts = config["num_experts" if qwen else "num_local_experts"]
    block = "mlp" if qwen else "block_sparse_moe"
    gate, down, up = ("gate_proj", "down_proj", "up_proj") if qwen else ("w1", "w2", "w3")
    shapes = {
        "model.embed_tokens.weight": (vocab, hidden),
        "model.norm.weight": (hidden,),
        "lm_head.weight": (vocab, hidden),
    }
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}"
        shapes[f"{p}.input_layernorm.weight"] = (hidden,)
        shapes[f"{p}.post_attention_layernorm.weight"] = (hidden,)
        shapes[f"{p}.self_attn.q_proj.weight"] = (heads * head_dim, hidden)
        shapes[f"{p}.self_attn.k_proj.weight"] = (kv_heads * head_dim, hidden)
        shapes[f"{p}.self_attn.v_proj.weight"] = (kv_heads * head_dim, hidden)
        shapes[f"{p}.self_attn.o_proj.weight"] = (hidden, heads * head_dim)
        if qwen:
            shapes[f"{p}.self_attn.q_norm.weight"] = (head_dim,)
            shapes[f"{p}.self_attn.k_norm.weight"] = (head_dim,)
        shapes[f"{p}.{block}.gate.weight"] = (experts, hidden)
        for e in range(experts):
            shapes[f"{p}.{block}.experts.{e}.{gate}.weight"] = (inner, hidden)
            shapes[f"{p}.{block}.experts.{e}.{up}.weight"] = (inner, hidden)
            shapes[f"{p}.{block}.experts.{e}.{down}.weight"] = (hidden, inner)
    return shapes


def hashed(name, shape):
    if len(shape) == 1:
        return philox.gain(SEED, name, shape[0])
    return philox.matrix(SEED, name, shape)


def build(config):
    module = MODULES[config["model_type"]]
    model = module.Model(module.ModelArgs.from_dict(config))
    weights = {n: mx.array(hashed(n, s)) for n, s in checkpoint_shapes(config).items()}
    model.load_weights(list(model.sanitize(weights).items()), strict=True)
    mx.eval(model.parameters())
    return model


def record_layers(model):
    """Taps the decoder layers' results without touching the forward pass."""
    taps = []
    kind = type(model.layers[0])
    forward = kind.__call__

    def tapped(self, *args, **kwargs):
        out = forward(self, *args, **kwargs)
        taps.append(out)
        return out

    kind.__call__ = tapped
    return taps


def run(config):
    model = build(config)
    taps = record_layers(model)
    cache = make_prompt_cache(model)
    tokens = philox.tokens(SEED, 0, sum(STEPS), config["vocab_size"])
    golden = {"steps": np.array(STEPS, dtype=np.float32)}
    first = 0
    for s, rows in enumerate(STEPS):
        taps.clear()
        logits = model(mx.array(tokens[first : first + rows])[None], cache=cache)
        for l, tap in enumerate(taps):
            golden[f"step{s}.layer{l}"] = np.array(tap[0])
        golden[f"step{s}.logits"] = np.array(logits[0])
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
    for name in CONFIGS:
        config = json.loads((ROOT / "models/configs" / name).read_text())
        golden = run(config)
        path = ROOT / "tests/golden/models" / config["model_type"] / "golden.safetensors"
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            old = {k: np.array(v) for k, v in mx.load(str(path)).items()}
            changed = difference(old, golden)
            if changed <= 1e-6:
                print(f"{path.relative_to(ROOT)}: unchanged (relative RMS {changed:.1e})")
                continue
            print(f"{path.relative_to(ROOT)}: changed by relative RMS {changed:.1e}")
        mx.save_safetensors(str(path), {k: mx.array(v) for k, v in golden.items()})
        print(f"{path.relative_to(ROOT)}: written, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
