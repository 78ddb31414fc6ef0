#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what transformers makes of one small Llama under every scaling of rotary embedding.

    python3 -m venv /tmp/models && /tmp/models/bin/pip install torch transformers safetensors
    /tmp/models/bin/python tests/golden/rope/make_rope.py

`model` is a Hugging Face folder whose config.json says nothing of RoPE; `cases.json` holds what each case adds to it,
the mean losses of both rows of `ids` cut to several lengths, and the tokens that greedy generation with a cache draws.
All in float32 with eager attention: here the rounding of angles is part of the value.
"""
import json
import pathlib
import tempfile

import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
ORIGINAL, LONGEST = 64, 256
SMALL = dict(vocab_size=67, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
             num_key_value_heads=1, head_dim=16, max_position_embeddings=ORIGINAL, bos_token_id=None, eos_token_id=None)
LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
CASES = {
    "linear": {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}},
    "linear_older": {"rope_theta": 500.0, "rope_scaling": {"type": "linear", "factor": 2.5}},
    "dynamic": {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}},
    "dynamic_older": {"rope_theta": 1000.0, "rope_scaling": {"type": "dynamic", "factor": 2.0}},
    "yarn": {"rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
                                 "original_max_position_embeddings": ORIGINAL}},
    "yarn_older": {"rope_theta": 1000000.0, "rope_scaling": {"type": "yarn", "factor": 4.0, "finetuned": True,
                                                             "original_max_position_embeddings": ORIGINAL}},
    "yarn_whole": {"max_position_embeddings": LONGEST, "rope_scaling": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": ORIGINAL, "beta_fast": 16,
        "beta_slow": 0.5, "truncate": False}},
    "yarn_mscale": {"rope_scaling": {"rope_type": "yarn", "factor": 40.0, "mscale": 0.707, "mscale_all_dim": 1.3,
                                     "original_max_position_embeddings": ORIGINAL, "beta_fast": 0}},
    "yarn_attention": {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "attention_factor": 0.8,
                                        "truncate": None}},
    # The factor is that of the lengths, and the original one stands beside.
    "yarn_lengths": {"max_position_embeddings": LONGEST, "original_max_position_embeddings": ORIGINAL,
                     "rope_scaling": {"rope_type": "yarn", "factor": None, "original_max_position_embeddings": 99}},
    "llama3_outside": {"max_position_embeddings": LONGEST, "original_max_position_embeddings": ORIGINAL,
                       "rope_scaling": LLAMA3},
    "llama3_without": {"max_position_embeddings": LONGEST, "rope_theta": 300.0, "rope_scaling": LLAMA3},
}


def write_model():
    torch.manual_seed(11)
    model = transformers.AutoModelForCausalLM.from_config(transformers.LlamaConfig(**SMALL))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(std=0.2)
            if name.endswith("norm.weight"):
                parameter.add_(1.0)
    model.save_pretrained(HERE / "model")
    (HERE / "model/generation_config.json").unlink()
    path = HERE / "model/config.json"
    config = json.loads(path.read_text())
    del config["rope_parameters"]
    path.write_text(json.dumps(config, indent=2) + "\n")


def load(folder):
    # A model keeps the frequencies of the longest sequence that it saw: each value has one of its own.
    return transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").float().eval()


def loss_of(folder, ids):
    with torch.no_grad():
        return load(folder)(ids, labels=ids).loss.item()


def greedy(folder, prompt, count):
    out = load(folder).generate(prompt[None], attention_mask=torch.ones_like(prompt[None]), do_sample=False,
                                max_new_tokens=count, pad_token_id=0)
    return out[0, len(prompt):].tolist()


def case(name, config, ids):
    lengths = [ORIGINAL // 2, ORIGINAL, ORIGINAL + 1, LONGEST]
    # The first begins below the original length and ends above it, the second is above it from the start and, where
    # the context has room, longer than a pass.
    short = name in ("linear_older", "dynamic_older")
    prompts = [ids[0, :ORIGINAL - 9], ids[1, :90 if short else 150]]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        base = json.loads((HERE / "model/config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**base, **config}))
        (folder / "model.safetensors").symlink_to(HERE / "model/model.safetensors")
        return {"name": name, "config": config, "losses": [[n, loss_of(folder, ids[:, :n])] for n in lengths],
                "greedy": [{"prompt": [row, len(prompt)], "tokens": greedy(folder, prompt, 32)}
                           for row, prompt in enumerate(prompts)]}


def main():
    torch.set_num_threads(1)
    write_model()
    ids = torch.randint(SMALL["vocab_size"], (2, LONGEST), generator=torch.Generator().manual_seed(5))
    head = {"made_by": f"transformers {transformers.__version__}, PyTorch {torch.__version__}", "ids": ids.tolist()}
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    cases = ",\n".join("    " + json.dumps(case(name, config, ids)) for name, config in CASES.items())
    (HERE / "cases.json").write_text("{\n" + ",\n".join(lines) + f',\n  "cases": [\n{cases}\n  ]\n}}\n')


if __name__ == "__main__":
    main()
