# SPDX-License-Identifier: Apache-2.0
"""A policy gradient: sample, reward, importance_sampling. A byte model that starts from nothing learns to prefer "ab".

Usage: policy_gradient.py [ROUNDS]
"""

import sys

import numpy as np

import meshloom

PROMPT = np.frombuffer(b"abab", np.uint8)
SAMPLES, LENGTH = 32, 16


def reward(tokens: np.ndarray) -> float:
    """The share of bytes that are an a or a b, and once more that of an a with a b behind it."""
    a, b = tokens == ord("a"), tokens == ord("b")
    return float(np.mean(a | b) + np.mean(a[:-1] & b[1:]))


def datum(sequence: meshloom.SampledSequence, advantage: float) -> meshloom.Datum:
    """Prompt and drawn tokens: what was drawn has its log-probs, the prompt advantage 0."""
    tokens = np.concatenate([PROMPT, sequence.tokens])
    prompt = np.zeros(len(PROMPT) - 1)
    drawn = np.full(len(sequence.tokens), advantage)
    return meshloom.Datum.next_token(tokens, logprobs=np.concatenate([prompt, sequence.logprobs]),
                                     advantages=np.concatenate([prompt, drawn]))


def main(rounds: int) -> None:
    config = {"model": {"preset": "byte_gpt_tiny"}, "plan": {"dtype": "float32"},
              "training": {"seq_len": 64, "micro_batch_size": 16}, "optimizer": {"type": "adam", "lr": 3e-3}}
    with meshloom.Client() as client, client.create_training_run(config) as run:
        for i in range(rounds):
            # Sampling has no place in the order of verbs: the step before must have ended.
            drawn = run.sample(PROMPT, samples=SAMPLES, max_tokens=LENGTH, seed=i * SAMPLES).result()
            rewards = np.array([reward(sequence.tokens) for sequence in drawn])
            advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-6) / (SAMPLES * LENGTH)
            data = [datum(*pair) for pair in zip(drawn, advantages)]
            kl = run.forward_backward(data, loss="importance_sampling").result().metrics["kl:sum"]
            step = run.optim_step(grad_clip_norm=1.0).result()
            bar = "#" * int(40 * rewards.mean() / 1.5)
            print(f"round {i:3d}: reward {rewards.mean():.3f} kl {kl:9.2e} norm {step.grad_norm:.2e} {bar}", flush=True)
        print(f"it writes: {run.sample('ab', max_tokens=LENGTH, temperature=0).result()[0].text!r}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
