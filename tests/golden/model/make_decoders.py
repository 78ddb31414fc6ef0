#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the golden models of the decoders that differ from Llama in switches, and of Gemma 3.

    python3 -m venv /tmp/models && /tmp/models/bin/pip install torch transformers safetensors
    /tmp/models/bin/python tests/golden/model/make_decoders.py [NAME..]

Each case is a Hugging Face folder (NAME_hf, as transformers saves it), a batch, and what transformers
makes of it in float64: logits, loss, gradients, and what five steps of AdamW leave. Reproducible: every
case is seeded by its name.
"""

import json
import pathlib
import sys
import zlib

import torch
import transformers
from safetensors.torch import save_file
from transformers import Gemma3TextConfig, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

HERE = pathlib.Path(__file__).resolve().parent
OPTIMIZER = {"type": "adamw", "lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-5, "weight_decay": 0.1,
             "decay": "ndim>=2", "clip_grad_norm": 1.0, "steps": 5}
TOLERANCE = {"out": [1e-5, 1e-5], "grad": [2e-6, 1e-5], "param_after": [1e-5, 1e-5]}
# A parameter that rounding errors of float32 move by more in the steps is left out of param_after.
MOST_DISTURBED = 3e-6

SMALL = dict(hidden_size=48, intermediate_size=76, max_position_embeddings=64, num_attention_heads=6,
             bos_token_id=0, eos_token_id=1)
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
TINY = SMALL | dict(hidden_size=24, intermediate_size=28, head_dim=8, num_hidden_layers=2, vocab_size=41,
                    num_key_value_heads=2)
CASES = {
    "qwen2": Qwen2Config(**SMALL, vocab_size=101, num_hidden_layers=2, num_key_value_heads=2,
                         tie_word_embeddings=True),
    # The first of three layers sees everything.
    "qwen2_window": Qwen2Config(**SMALL, vocab_size=97, num_hidden_layers=3, num_key_value_heads=3,
                                use_sliding_window=True, sliding_window=5, max_window_layers=1),
    "mistral": MistralConfig(**SMALL, vocab_size=101, num_hidden_layers=2, num_key_value_heads=2,
                             head_dim=12, sliding_window=7),
    "mistral_whole": MistralConfig(**SMALL, vocab_size=89, num_hidden_layers=2, num_key_value_heads=6,
                                   sliding_window=None, rope_parameters=LLAMA3),
    "qwen3": Qwen3Config(**SMALL, vocab_size=103, num_hidden_layers=2, num_key_value_heads=3, head_dim=10,
                         tie_word_embeddings=True),
    "qwen3_window": Qwen3Config(**SMALL, vocab_size=83, num_hidden_layers=3, num_key_value_heads=2,
                                head_dim=8, attention_bias=True, use_sliding_window=True, sliding_window=6,
                                layer_types=["sliding_attention", "full_attention", "sliding_attention"]),
    # Sequences of 23 tokens are longer than those that the models were made for.
    "llama_dynamic": LlamaConfig(**TINY | dict(max_position_embeddings=10), rope_parameters={
        "rope_type": "dynamic", "rope_theta": 50.0, "factor": 3.0}),
    "mistral_yarn": MistralConfig(**TINY, sliding_window=None, rope_parameters={
        "rope_type": "yarn", "rope_theta": 50.0, "factor": 4.0, "original_max_position_embeddings": 12,
        "beta_fast": 2.0, "beta_slow": 0.2}),
    # Every third layer sees everything. Queries are not scaled by the size of a head.
    "gemma3": Gemma3TextConfig(**SMALL, vocab_size=97, num_hidden_layers=3, num_key_value_heads=2, head_dim=10,
                               query_pre_attn_scalar=7, sliding_window=5, sliding_window_pattern=3,
                               rope_parameters={"full_attention": {"rope_type": "linear", "rope_theta": 500.0,
                                                                   "factor": 2.0},
                                                "sliding_attention": {"rope_type": "default",
                                                                      "rope_theta": 50.0}}),
}


def variant(label, dims, checkpoint="none", context=None):
    """`dims`: a list of (name, size); "tp_sp" is tp with sequence parallelism."""
    names = [name for name, _ in dims]
    plan = {}
    if "tp" in names or "tp_sp" in names:
        plan |= {"tensor_parallel": True, "sequence_parallel": "tp_sp" in names}
    if "cp" in names:
        plan["context_parallel"] = context or {"load_balancer": "head_tail", "rotate": "auto"}
    if "fsdp" in names:
        plan["fully_shard"] = True
    plan |= {"activation_checkpoint": checkpoint, "dtype": "float32"}
    return {"label": label, "mesh": {"shape": [size for _, size in dims],
                                     "dim_names": [name.removesuffix("_sp") for name in names]}, "plan": plan}


def variants(name):
    if name in ("llama_dynamic", "mistral_yarn"):
        return [variant("dp1", [("dp", 1)]), variant("dp1_full", [("dp", 1)], "full"),
                variant("tp2_sp", [("tp_sp", 2)]), variant("cp2", [("cp", 2)]),
                variant("cp3_pull", [("cp", 3)], context={"load_balancer": "head_tail", "rotate": "pull"}),
                variant("cp2_ulysses", [("cp", 2)], context={"load_balancer": "head_tail", "rotate": "ulysses"}),
                variant("fsdp2_cp2", [("fsdp", 2), ("cp", 2)], "selective")]
    neighbours = {"load_balancer": "none", "rotate": "alltoall"}
    return [
        variant("dp1", [("dp", 1)]),
        variant("dp1_selective", [("dp", 1)], "selective"),
        variant("dp1_full", [("dp", 1)], "full"),
        variant("dp3", [("dp", 3)]),
        variant("fsdp2", [("fsdp", 2)]),
        variant("fsdp3_full", [("fsdp", 3)], "full"),
        variant("tp2", [("tp", 2)]),
        variant("tp2_sp", [("tp_sp", 2)]),
        variant("tp3", [("tp", 3)]),
        variant("tp3_sp_full", [("tp_sp", 3)], "full"),
        variant("tp4_sp", [("tp_sp", 4)]),
        variant("cp2", [("cp", 2)]),
        variant("cp2_neighbours", [("cp", 2)], context=neighbours),
        variant("cp3_pull", [("cp", 3)], context={"load_balancer": "head_tail", "rotate": "pull"}),
        variant("cp3_area_allgather", [("cp", 3)], "full",
                {"load_balancer": "mask_area", "rotate": "allgather"}),
        variant("cp2_ulysses", [("cp", 2)], context={"load_balancer": "head_tail", "rotate": "ulysses"}),
        variant("dp2_tp2_sp", [("dp", 2), ("tp_sp", 2)]),
        variant("fsdp2_tp2", [("fsdp", 2), ("tp", 2)]),
        variant("cp2_tp2_sp", [("cp", 2), ("tp_sp", 2)]),
        variant("fsdp2_cp2", [("fsdp", 2), ("cp", 2)], "selective"),
    ]


def widen(model):
    """float64 everywhere: transformers computes RMS norms and rotary angles in float32 else."""
    for module in model.modules():
        name = type(module).__name__
        if name.endswith("RMSNorm"):
            if name.startswith("Gemma3"):
                module.forward = lambda x, module=module: module._norm(x) * (1.0 + module.weight)
                continue

            def norm(x, module=module):
                variance = x.pow(2).mean(-1, keepdim=True)
                return module.weight * (x * torch.rsqrt(variance + module.variance_epsilon))
            module.forward = norm
        elif name == "Gemma3RotaryEmbedding":
            def angles_of(x, position_ids, layer_type, module=module):
                half = position_ids[..., None].double() * getattr(module, f"{layer_type}_inv_freq").double()
                both = torch.cat((half, half), dim=-1)
                return both.cos(), both.sin()
            module.forward = angles_of
        elif name.endswith("RotaryEmbedding"):
            def angles(x, position_ids, module=module, frequencies=module.inv_freq.double()):
                if module.rope_type == "dynamic":
                    longest = position_ids.max() + 1
                    frequencies = ROPE_INIT_FUNCTIONS["dynamic"](module.config, seq_len=longest)[0].double()
                half = position_ids[..., None].double() * frequencies
                both = torch.cat((half, half), dim=-1)
                return both.cos() * module.attention_scaling, both.sin() * module.attention_scaling
            module.forward = angles
    return model.double()


def fresh_model(config):
    """Larger weights than training starts from, so that biases, norms and windows show."""
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(std=0.1)
            if name.endswith("norm.weight") and config.model_type != "gemma3_text":
                parameter.add_(1.0)
    return model


def batch_of(config, generator):
    ids = torch.randint(config.vocab_size, (4, 23), generator=generator)
    labels = ids.clone()
    labels[torch.rand(labels.shape, generator=generator) < 0.1] = -100
    return ids, labels


def run(folder, ids, labels, disturbance=None):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    model = widen(model).train()
    if disturbance is not None:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1 + 1e-7 * torch.randn(parameter.shape, generator=disturbance))
    named = dict(model.named_parameters())
    decayed = [p for p in named.values() if p.ndim >= 2]
    others = [p for p in named.values() if p.ndim < 2]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": OPTIMIZER["weight_decay"]},
                                   {"params": others, "weight_decay": 0.0}],
                                  lr=OPTIMIZER["lr"], betas=OPTIMIZER["betas"], eps=OPTIMIZER["eps"])
    out = {"losses": [], "grad_norms": []}
    for step in range(OPTIMIZER["steps"]):
        logits = model(ids).logits
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            out["logits"], out["loss"] = logits.detach(), loss.detach()
            out["grads"] = {name: p.grad.clone() for name, p in named.items()}
        norm = torch.sqrt(sum(p.grad.pow(2).sum() for p in named.values()))
        for p in named.values():
            p.grad *= min(1.0, OPTIMIZER["clip_grad_norm"] / norm)
        optimizer.step()
        out["losses"].append(loss.detach())
        out["grad_norms"].append(norm)
    out["after"] = {name: p.detach().clone() for name, p in named.items()}
    return out


def undisturbed(folder, ids, labels, result):
    generator = torch.Generator().manual_seed(1)
    names = set(result["after"])
    for _ in range(4):
        other = run(folder, ids, labels, generator)["after"]
        names -= {n for n in names if (other[n] - result["after"][n]).abs().max() > MOST_DISTURBED}
    return names


def make(name, config):
    seed = zlib.crc32(name.encode())
    torch.manual_seed(seed)
    folder = HERE / f"{name}_hf"
    fresh_model(config).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    ids, labels = batch_of(config, torch.Generator().manual_seed(seed))
    result = run(folder, ids, labels)
    stable = undisturbed(folder, ids, labels, result)
    # Those of the first layer, and of the others what is small, keep the file small.
    kept = {n for n in stable if ".0." in n or result["after"][n].ndim == 1}
    tensors = {"in.input_ids": ids, "in.labels": labels, "out.logits": result["logits"],
               "out.loss": result["loss"], "out.losses": torch.stack(result["losses"]),
               "out.grad_norms": torch.stack(result["grad_norms"])}
    tensors |= {f"grad.param.{n}": g for n, g in result["grads"].items()}
    tensors |= {f"param_after.{n}": result["after"][n] for n in sorted(kept)}
    tensors = {n: t.float().contiguous() if t.is_floating_point() else t for n, t in tensors.items()}
    save_file(tensors, HERE / f"{name}.safetensors")
    lines = ",\n".join("    " + json.dumps(v) for v in variants(name))
    head = {"kind": "model", "model_dir": f"{name}_hf", "tolerance": TOLERANCE, "optimizer": OPTIMIZER}
    text = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in head.items())
    (HERE / f"{name}.json").write_text(f'{{\n{text},\n  "variants": [\n{lines}\n  ]\n}}\n')
    size = (HERE / f"{name}.safetensors").stat().st_size
    print(f"{name}: {size} bytes, loss {result['losses'][0]:.6f} to {result['losses'][-1]:.6f}, param_after of "
          f"{len(kept)} parameters, disturbed: {sorted(set(result['after']) - stable)}")


if __name__ == "__main__":
    for case in sys.argv[1:] or CASES:
        make(case, CASES[case])
