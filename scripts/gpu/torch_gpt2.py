#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times training steps of GPT-2 124M by PyTorch on one GPU, to stand beside `meshloom-bench train` of the same run.

The weights stay in float32 and products run in bfloat16 (autocast), attention by scaled_dot_product_attention, AdamW
fused, gradients clipped by their norm, random tokens, no dropout. The vocabulary is padded to a multiple of 128, as
fast trainers do, and only the true tokens count. One JSON line, then one line in words. Exits 77 where there is no
PyTorch or no GPU.
"""
import argparse
import json
import statistics
import sys
import time

try:
    import torch
    import torch.nn.functional as F
except ImportError as error:
    print(f"SKIPPED: {error}")
    sys.exit(77)


class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.proj = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.fc, self.fc_proj = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        heads = self.qkv(self.norm_1(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.fc_proj(F.gelu(self.fc(self.norm_2(x)), approximate="tanh"))


class Gpt2(torch.nn.Module):
    def __init__(self, layers, heads, width, vocabulary, length):
        super().__init__()
        padded = -(-vocabulary // 128) * 128
        self.tokens = torch.nn.Embedding(padded, width)
        self.positions = torch.nn.Embedding(length, width)
        self.blocks = torch.nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = torch.nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, labels):
        x = self.tokens(tokens) + self.positions.weight[:tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=["eager", "compiled"], default="eager")
    parser.add_argument("--micro-batch", type=int, default=16)
    parser.add_argument("--seq", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--vocabulary", type=int, default=50257)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: to try this script")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("SKIPPED: PyTorch sees no GPU")
        sys.exit(77)

    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    model = Gpt2(options.layers, options.heads, options.width, options.vocabulary, options.seq).to(options.device)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True)
    if options.mode == "compiled":
        model = torch.compile(model)
    tokens = torch.randint(options.vocabulary, (options.micro_batch, options.seq + 1), device=options.device)

    def step():
        with torch.autocast(options.device, torch.bfloat16):
            loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    # Reading the loss waits for the device, once a step, as a trainer that logs does.
    begin = time.perf_counter()
    for _ in range(options.warmup):
        loss = step().item()
    warmup = time.perf_counter() - begin
    seconds = []
    for _ in range(options.steps):
        begin = time.perf_counter()
        loss = step().item()
        seconds.append(time.perf_counter() - begin)
    step_seconds = statistics.median(seconds)
    rate = options.micro_batch * options.seq / step_seconds
    memory = torch.cuda.max_memory_allocated() if options.device == "cuda" else 0
    count = sum(parameter.numel() for parameter in parameters)
    print(json.dumps({"bench": "torch_gpt2", "torch": torch.__version__, "mode": options.mode, "parameters": count,
                      "micro_batch": options.micro_batch, "seq": options.seq, "tokens_per_second": rate,
                      "step_seconds": step_seconds, "warmup_seconds": warmup, "peak_bytes": memory, "last_loss": loss}))
    print(f"{rate:.0f} tokens/s, {1e3 * step_seconds:.1f} ms a step, {memory / 1e6:.0f} MB, loss {loss:.3f}")


if __name__ == "__main__":
    main()
