#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs `meshloom-bench` and PyTorch in turn on the same work and prints both and their ratio, a JSON line each.

    beside_torch.py BENCH train        whole training steps of a GPT: eager, bfloat16 autocast and torch.compile
    beside_torch.py BENCH attention    attention forward and backward: scaled_dot_product_attention
    beside_torch.py BENCH collectives  collectives of N ranks of this host: gloo, from mpirun and Open MPI's beside them

A ratio above 1 says that Meshloom is faster. Every figure is the median of the rounds, in each of which both ran.
Exits 77 if PyTorch is not there.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

try:
    import torch
    import torch.distributed
    import torch.nn.functional as F
except ImportError as error:
    print(f"SKIPPED: {error}")
    sys.exit(77)

MODELS = {"gpt2_124m": dict(layers=12, heads=12, hidden=768, vocabulary=50257),
          "byte_gpt_10m": dict(layers=6, heads=6, hidden=384, vocabulary=256)}


def bench(command, threads):
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    out = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, env=environment).stdout
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def tell(values, ours, theirs):
    """Of rates: higher is better."""
    mine = statistics.median(ours)
    line = {**values, "meshloom": round(mine, 3)}
    for name, rates in theirs.items():
        line[name] = round(statistics.median(rates), 3)
        line[f"over_{name}"] = round(statistics.median(a / b for a, b in zip(ours, rates)), 3)
    print(json.dumps(line), flush=True)


# --- train

class Block(torch.nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = torch.nn.LayerNorm(hidden), torch.nn.LayerNorm(hidden)
        self.qkv, self.out = torch.nn.Linear(hidden, 3 * hidden), torch.nn.Linear(hidden, hidden)
        self.up, self.down = torch.nn.Linear(hidden, 4 * hidden), torch.nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        rows, length, hidden = x.shape
        q, k, v = (t.view(rows, length, self.heads, -1).transpose(1, 2)
                   for t in self.qkv(self.norm1(x)).split(hidden, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(rows, length, hidden))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(torch.nn.Module):
    def __init__(self, layers, heads, hidden, vocabulary, length):
        super().__init__()
        self.tokens = torch.nn.Embedding(vocabulary, hidden)
        self.positions = torch.nn.Embedding(length, hidden)
        self.blocks = torch.nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.norm = torch.nn.LayerNorm(hidden)

    def forward(self, tokens, labels):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)  # the head is the embedding
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


class Trainer:
    def __init__(self, options, mode):
        torch.manual_seed(1)
        sizes = MODELS[options.model]
        model = Gpt(**sizes, length=options.seq)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        self.parameters = list(model.parameters())
        self.model = torch.compile(model) if "compiled" in mode else model
        self.autocast = torch.autocast("cpu", torch.bfloat16, enabled="bfloat16" in mode)
        self.tokens = torch.randint(sizes["vocabulary"], (options.batch, options.seq + 1))

    def step(self):
        with self.autocast:
            loss = self.model(self.tokens[:, :-1], self.tokens[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()

    def tokens_per_second(self, steps):
        begin = time.perf_counter()
        for _ in range(steps):
            self.step()
        return self.tokens[:, 1:].numel() * steps / (time.perf_counter() - begin)


def train(options):
    trainers = {mode: Trainer(options, mode) for mode in options.modes}
    for trainer in trainers.values():
        for _ in range(2):
            trainer.step()
    ours, theirs = [], {mode: [] for mode in trainers}
    for _ in range(options.rounds):
        line, = bench([options.bench, "train", "--model", options.model, "--seq", str(options.seq), "--batch",
                       str(options.batch), "--dtype", options.dtype, "--threads", str(options.threads), "--steps",
                       str(options.steps)], options.threads)
        ours.append(line["tokens_per_second"])
        for mode, trainer in trainers.items():
            theirs[mode].append(trainer.tokens_per_second(options.steps))
    tell({"unit": "tokens/s", "model": options.model, "seq": options.seq, "batch": options.batch,
          "dtype": options.dtype, "threads": options.threads}, ours, theirs)


# --- attention

def best_seconds(run, seconds):
    best, end = float("inf"), time.perf_counter() + seconds
    while True:
        begin = time.perf_counter()
        run()
        now = time.perf_counter()
        best = min(best, now - begin)
        if now >= end:
            return best


def attention(options):
    dtype = getattr(torch, options.dtype)
    for length in options.seq:
        shape = (1, options.heads, length, options.dims)
        q, k, v = (torch.randn(shape, dtype=dtype, requires_grad=True) for _ in range(3))
        gradient = torch.randn(shape, dtype=dtype)
        product = 2.0 * options.heads * options.dims * length * length / 2

        def forward_backward():
            F.scaled_dot_product_attention(q, k, v, is_causal=True).backward(gradient)
            q.grad = k.grad = v.grad = None

        forward_backward()
        ours, theirs = [], []
        for _ in range(options.rounds):
            line, = bench([options.bench, "attention", "--json", "--seq", str(length), "--heads", str(options.heads),
                           "--dims", str(options.dims), "--dtype", options.dtype, "--threads", str(options.threads)],
                          options.threads)
            ours.append(line["gflops"])
            theirs.append(7 * product / best_seconds(forward_backward, 1.0) / 1e9)
        tell({"unit": "GFLOP/s", "seq": length, "heads": options.heads, "dims": options.dims, "dtype": options.dtype,
              "threads": options.threads}, ours, {"sdpa": theirs})


# --- collectives

def gloo_rank(rank, options, store, path):
    torch.set_num_threads(options.threads)
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=options.ranks)
    lines = []
    for name in options.collectives:
        size = options.smallest
        while size <= options.largest:
            seconds = gloo_seconds(name, size // 4, options)
            slowest = torch.tensor(seconds)
            torch.distributed.all_reduce(slowest, torch.distributed.ReduceOp.MAX)
            lines.append((name, size, statistics.median(slowest.tolist())))
            size *= 4
    torch.distributed.destroy_process_group()
    if rank == 0:
        with open(path, "w") as file:
            json.dump(lines, file)


def gloo_seconds(name, elements, options):
    buffers = [(torch.zeros(elements), torch.zeros(elements)) for _ in range(3)]
    part = elements // options.ranks
    together = 16 if elements * 4 <= 16384 else 1

    def call(given, taken):
        if name == "all_reduce":
            torch.distributed.all_reduce(given)
        elif name == "all_gather":
            torch.distributed.all_gather_into_tensor(taken, given[:part])
        elif name == "reduce_scatter":
            torch.distributed.reduce_scatter_tensor(taken[:part], given)
        else:
            torch.distributed.all_to_all_single(taken, given)

    seconds = []
    for turn in range(options.repetitions + 2):
        for given, taken in buffers:
            given.zero_()
            taken.zero_()
        torch.distributed.barrier()
        begin = time.perf_counter()
        for i in range(together):
            call(*buffers[(turn + i) % 3])
        seconds.append((time.perf_counter() - begin) / together)
    return seconds[2:]


def collectives(options):
    sizes = ["--from", str(options.smallest), "--to", str(options.largest)]
    all_ours, all_theirs = {}, {}
    for _ in range(options.rounds):
        lines = bench(["mpirun", "-n", str(options.ranks), "--bind-to", "none", "--oversubscribe", "--allow-run-as-root",
                       options.bench, "collectives", "--json", "--repetitions", str(options.repetitions), *sizes,
                       "--collectives", ",".join(options.collectives)], options.threads)
        for line in lines:
            all_ours.setdefault((line["collective"], line["bytes"]), []).append(line)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "result")
            torch.multiprocessing.spawn(gloo_rank, (options, os.path.join(folder, "store"), path), options.ranks)
            with open(path) as file:
                for name, size, seconds in json.load(file):
                    all_theirs.setdefault((name, size), []).append(seconds * 1e6)
    for (name, size), lines in all_ours.items():
        # Calls a second, so that a ratio above 1 is faster as everywhere here.
        rates = {"gloo": [1 / us for us in all_theirs[name, size]], "open_mpi": [1 / line["mpi_us"] for line in lines]}
        ours = [1 / line["symmetric_us"] for line in lines]
        line = {"unit": "us", "collective": name, "bytes": size, "ranks": options.ranks,
                "meshloom": round(1 / statistics.median(ours), 2)}
        for peer, values in rates.items():
            line[peer] = round(1 / statistics.median(values), 2)
            line[f"over_{peer}"] = round(statistics.median(a / b for a, b in zip(ours, values)), 2)
        print(json.dumps(line), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", help="build/release/bin/meshloom-bench")
    parser.add_argument("--threads", type=int, default=None, help="default 2; of collectives 1 a rank")
    parser.add_argument("--rounds", type=int, default=5)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("train")
    one.add_argument("--model", choices=MODELS, default="gpt2_124m")
    one.add_argument("--seq", type=int, default=1024)
    one.add_argument("--batch", type=int, default=1)
    one.add_argument("--dtype", default="float32", help="of Meshloom: float32 or bfloat16")
    one.add_argument("--steps", type=int, default=3, help="in a round")
    one.add_argument("--modes", nargs="+", default=["eager", "compiled", "bfloat16", "bfloat16_compiled"],
                     choices=["eager", "compiled", "bfloat16", "bfloat16_compiled"], help="of PyTorch")
    one.set_defaults(run=train)
    one = commands.add_parser("attention")
    one.add_argument("--seq", type=int, nargs="+", default=[512, 2048, 8192])
    one.add_argument("--heads", type=int, default=12)
    one.add_argument("--dims", type=int, default=64)
    one.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    one.set_defaults(run=attention)
    one = commands.add_parser("collectives")
    one.add_argument("--ranks", type=int, default=2)
    one.add_argument("--smallest", type=int, default=16, help="bytes, then four times as much and so on")
    one.add_argument("--largest", type=int, default=1 << 26)
    one.add_argument("--repetitions", type=int, default=15)
    one.add_argument("--collectives", nargs="+", default=["all_reduce", "reduce_scatter", "all_gather", "all_to_all"])
    one.set_defaults(run=collectives)
    options = parser.parse_args()
    if options.threads is None:
        options.threads = 1 if options.command == "collectives" else 2
    torch.set_num_threads(options.threads)
    options.run(options)


if __name__ == "__main__":
    main()
