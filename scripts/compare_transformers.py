#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: compare_transformers.py [--bin FOLDER] [--ranks N] [--steps N] [--only MODEL] [--limit X]

Trains a small model of every architecture twice: by Meshloom, as a job of a daemon of its own, and by PyTorch with
the models of `transformers`. Both begin with the weights that transformers wrote, take the same batch (all samples,
so that their order does not matter) in every step, and use AdamW with clipped gradients in float32. Prints a Markdown
table of the losses and exits 1 if one differs by more than --limit of itself. Prints SKIP and exits 77 where a package
or a program is missing.
"""
import argparse
import glob
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
VOCABULARY, SEQ_LEN, SAMPLES, SEED = 211, 24, 6, 5
LEARNING_RATE, BETAS, EPS, WEIGHT_DECAY, MAX_NORM = 1e-3, (0.9, 0.95), 1e-8, 0.1, 1.0

DECODER = dict(vocab_size=VOCABULARY, hidden_size=48, intermediate_size=100, num_hidden_layers=3,
               num_attention_heads=6, num_key_value_heads=2, max_position_embeddings=32, bos_token_id=None,
               eos_token_id=None, pad_token_id=None)
MODELS = {
    "GPT-2": ("GPT2", "LMHeadModel", dict(vocab_size=VOCABULARY, n_embd=48, n_layer=3, n_head=6, n_positions=32,
                                          embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0, bos_token_id=None,
                                          eos_token_id=None)),
    "Llama, grouped heads": ("Llama", "ForCausalLM", dict(tie_word_embeddings=False)),
    "Llama, tied, Llama 3's rotary scaling": ("Llama", "ForCausalLM", dict(
        tie_word_embeddings=True, rope_parameters=dict(
            rope_type="llama3", rope_theta=10000.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
            original_max_position_embeddings=16))),
    # Of a quarter of the context that is trained.
    "Llama, linear RoPE": ("Llama", "ForCausalLM", dict(
        max_position_embeddings=8, rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0))),
    "Llama, dynamic RoPE": ("Llama", "ForCausalLM", dict(
        max_position_embeddings=8, rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, factor=4.0))),
    "Llama, YaRN": ("Llama", "ForCausalLM", dict(rope_parameters=dict(
        rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=8))),
    "Llama, biases": ("Llama", "ForCausalLM", dict(attention_bias=True, mlp_bias=True)),
    "Mistral, window of 7": ("Mistral", "ForCausalLM", dict(sliding_window=7)),
    "Qwen2": ("Qwen2", "ForCausalLM", dict()),
    "Qwen3": ("Qwen3", "ForCausalLM", dict(head_dim=8)),
    "Gemma 3, one layer of three without a window": ("Gemma3", "ForCausalLM", dict(
        head_dim=8, query_pre_attn_scalar=8, sliding_window=7,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"])),
    "BERT": ("Bert", "ForMaskedLM", dict(
        vocab_size=VOCABULARY, hidden_size=48, intermediate_size=100, num_hidden_layers=3, num_attention_heads=6,
        max_position_embeddings=32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, pad_token_id=None)),
}
# The same encoder without a head: Meshloom gives it one, with which transformers goes on.
MODELS["BERT, fresh head"] = ("Bert", "Model", MODELS["BERT"][2])


def skip(what):
    print(f"SKIP: {what}")
    sys.exit(77)


try:
    import torch
    import transformers
except ImportError as error:
    torch = transformers = None
    missing = error


def make_model(name):
    family, kind, options = MODELS[name]
    if kind == "ForCausalLM":
        options = {**DECODER, **options}
    torch.manual_seed(7)
    # Gemma 3's own name is that of the model that sees pictures, too.
    kind_of_config = "Gemma3TextConfig" if family == "Gemma3" else family + "Config"
    config = getattr(transformers, kind_of_config)(**options)
    config._attn_implementation = "eager"
    model = getattr(transformers, family + kind)(config).float().eval()  # Nothing is dropped.
    with torch.no_grad():
        for parameter in model.parameters():  # Fresh biases and norms would hide mistakes.
            parameter += 0.02 * torch.randn_like(parameter)
    return model


def torch_losses(model, tokens, steps):
    """The losses of `steps` optimizer steps."""
    inputs = torch.stack([tokens[i * SEQ_LEN:(i + 1) * SEQ_LEN] for i in range(SAMPLES)])
    shifted = torch.stack([tokens[i * SEQ_LEN + 1:(i + 1) * SEQ_LEN + 1] for i in range(SAMPLES)])
    labels = inputs if isinstance(model, transformers.BertForMaskedLM) else shifted
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in parameters if p.ndim >= 2], "weight_decay": WEIGHT_DECAY},
         {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0}],
        lr=LEARNING_RATE, betas=BETAS, eps=EPS)
    losses = []
    for _ in range(steps):
        logits = model(inputs).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), labels.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, MAX_NORM)
        optimizer.step()
        losses.append(loss.item())
    return losses


def job_of(folder, steps, name):
    family, kind, _ = MODELS[name]
    data = {"path": "tokens.bin", "format": "nanogpt", "validation_split": 0.0}
    if family == "Bert":  # Every token is asked for, and none is hidden: nothing is drawn by chance.
        data["masked_lm"] = {"mask_token": 0, "probability": 1.0, "mask_share": 0.0, "random_share": 0.0}
    return {"run": {
        "model": {"hf_folder": folder, "fresh_head": kind == "Model"},
        "plan": {"dtype": "float32"},
        "training": {"steps": steps, "seed": SEED, "seq_len": SEQ_LEN, "global_batch_size": SAMPLES,
                     "max_norm": MAX_NORM},
        "optimizer": {"type": "adamw", "lr": LEARNING_RATE, "beta1": BETAS[0], "beta2": BETAS[1], "eps": EPS,
                      "weight_decay": WEIGHT_DECAY},
        "lr_scheduler": {"decay_type": "constant"},
        "data": data}}


class Daemon:
    """A daemon on folders of its own, which ends with the `with` block."""

    def __init__(self, programs, ranks, work):
        self.client, self.work = programs / "meshloom", work
        self.state = work / "state"
        environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        self.log = open(work / "daemon.log", "w")
        self.process = subprocess.Popen(
            ["mpirun", "-n", str(ranks), "--bind-to", "none", "--oversubscribe", programs / "meshloomd",
             "--listen", "127.0.0.1:0", "--state-dir", self.state, "--data-dir", work / "data"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT, env=environment)

    def __enter__(self):
        address = self.state / "address"
        while not (address.exists() and address.read_text().strip()):
            if self.process.poll() is not None:
                sys.exit("the daemon did not start:\n" + (self.work / "daemon.log").read_text())
            time.sleep(0.05)
        self.address = address.read_text().strip()
        self.run("status", "--wait", "60")
        return self

    def __exit__(self, *_):
        try:
            self.run("shutdown", "--wait", "60")
        finally:
            if self.process.poll() is None:
                self.process.terminate()
            self.process.wait()
            self.log.close()

    def run(self, *arguments):
        done = subprocess.run([self.client, "--address", self.address, *arguments], text=True, capture_output=True)
        if done.returncode != 0:
            raise RuntimeError(f"meshloom {' '.join(map(str, arguments))}: {done.stdout}{done.stderr}")
        return done.stdout

    def losses(self, job):
        """Of all steps of a job, which is waited for."""
        path = self.work / "job.json"
        path.write_text(json.dumps(job))  # YAML, too.
        before = set(glob.glob(str(self.state / "jobs" / "*")))
        self.run("job", "submit", path, "--follow")
        (folder,) = set(glob.glob(str(self.state / "jobs" / "*"))) - before
        records = map(json.loads, (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines())
        return [record["loss"] for record in records if "loss" in record]

    def initial_weights(self, job):
        """The folder of the weights that this job begins with."""
        config = {key: job["run"][key] for key in ("model", "plan")}
        config["training"] = {key: job["run"]["training"][key] for key in ("seed", "seq_len")}
        path = self.work / "run.json"
        path.write_text(json.dumps({"config": config}))
        token = json.loads(self.run("run", "create", path, "--name", "initial", "--json"))["token"]
        while (state := json.loads(self.run("run", "show", "initial", "--json"))["state"]) in ("queued", "creating"):
            time.sleep(0.05)
        assert state == "ready", f"the run is {state}"
        self.run("run", "save-weights", "initial", "weights", "--token", token)
        self.run("run", "close", "initial", "--token", token)
        return self.state / "runs/initial/weights/weights"


def with_head(encoder, folder):
    """The model in the folder, whose encoder must be the one given, bit for bit."""
    model, report = transformers.BertForMaskedLM.from_pretrained(
        folder, attn_implementation="eager", output_loading_info=True)
    assert not any(report.values()), f"{folder}: {report}"
    values = model.bert.state_dict()
    for name, value in encoder.state_dict().items():
        assert name.startswith("pooler.") or torch.equal(values[name], value), f"{name} is not the folder's"
    return model.float().eval()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=REPOSITORY / "build/release/bin",
                        help="where meshloom and meshloomd are")
    parser.add_argument("--ranks", type=int, default=1, help="of the daemon")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--only", choices=MODELS)
    parser.add_argument("--limit", type=float, default=1e-5, help="of the relative difference of a loss")
    options = parser.parse_args()
    if torch is None:
        skip(f"{missing}; pip install torch transformers")
    for program in (options.bin / "meshloom", options.bin / "meshloomd", "mpirun"):
        if shutil.which(program) is None:
            skip(f"there is no program {program}; scripts/quickstart.sh builds Meshloom")
    transformers.utils.logging.disable_progress_bar()
    tokens = torch.randint(VOCABULARY, (SAMPLES * SEQ_LEN + 1,), generator=torch.Generator().manual_seed(3))
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        (work / "data").mkdir()
        (work / "data/tokens.bin").write_bytes(tokens.to(torch.int32).numpy().astype("<u2").tobytes())
        print(f"transformers {transformers.__version__}, PyTorch {torch.__version__}, {options.ranks} ranks, "
              f"{options.steps} steps of AdamW, float32\n")
        print("| model | first loss, transformers | Meshloom | last loss, transformers | Meshloom | largest relative "
              "difference |\n| --- | --- | --- | --- | --- | --- |", flush=True)
        with Daemon(options.bin, options.ranks, work) as daemon:
            for number, name in enumerate(MODELS if options.only is None else [options.only]):
                model = make_model(name)
                model.save_pretrained(work / "data" / f"model-{number}")
                job = job_of(f"model-{number}", options.steps, name)
                if MODELS[name][1] == "Model":
                    model = with_head(model, daemon.initial_weights(job))
                ours, theirs = daemon.losses(job), torch_losses(model, tokens, options.steps)
                assert len(ours) == len(theirs), f"{len(ours)} losses of {len(theirs)} steps"
                difference = max(abs(a - b) / abs(b) for a, b in zip(ours, theirs))
                worst = max(worst, difference)
                print(f"| {name} | {theirs[0]:.7f} | {ours[0]:.7f} | {theirs[-1]:.7f} | {ours[-1]:.7f} | "
                      f"{difference:.1e} |", flush=True)
    return 0 if worst <= options.limit else 1


if __name__ == "__main__":
    sys.exit(main())
