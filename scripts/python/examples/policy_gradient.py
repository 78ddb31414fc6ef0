# SPDX-License-Identifier: Apache-2.0
"""A policy gradient: sample, reward, importance_sampling. A byte model that starts from nothing learns to prefer "ab".

Usage: policy_gradient.py [ROUNDS]
"""

import sys

import numpy as np

import meshloom

PROMPT = np.frombuffer(b"abab", np.uint8)
SAMPLES, LENGTH = 64, 16


def rewards_of(tokens: np.ndarray) -> np.ndarray:
    """Of each byte: a half for an a or a b, and another half where it is not the one before it."""
    before = np.concatenate([PROMPT[-1:], tokens[:-1]])
    letter = np.isin(tokens, PROMPT)
    return 0.5 * letter + 0.5 * (letter & np.isin(before, PROMPT) & (tokens != before))


def datum(sequence: meshloom.SampledSequence, advantages: np.ndarray) -> meshloom.Datum:
    """Prompt and drawn bytes: what was drawn has its log-probs and advantages, the prompt has advantage 0."""
    prompt = np.zeros(len(PROMPT) - 1)
    return meshloom.Datum.next_token(np.concatenate([PROMPT, sequence.tokens]),
                                     logprobs=np.concatenate([prompt, sequence.logprobs]),
                                     advantages=np.concatenate([prompt, advantages]))


def main(rounds: int) -> None:
    config = {"model": {"preset": "byte_gpt_tiny"}, "plan": {"dtype": "float32"},
              "training": {"seq_len": 64, "micro_batch_size": 16}, "optimizer": {"type": "adam", "lr": 1e-3}}
    with meshloom.Client() as client, client.create_training_run(config) as run:
        for i in range(rounds):
            # Sampling has no place in the order of verbs: the step before must have ended.
            drawn = run.sample(PROMPT, samples=SAMPLES, max_tokens=LENGTH, seed=i).result()
            rewards = np.stack([rewards_of(sequence.tokens) for sequence in drawn])
            advantages = (rewards - rewards.mean()) / rewards.size
            data = [datum(*pair) for pair in zip(drawn, advantages)]
            kl = run.forward_backward(data, loss="importance_sampling").result().metrics["kl:sum"]
            step = run.optim_step(grad_clip_norm=1.0).result()
            bar = "#" * int(40 * rewards.mean())
            print(f"round {i:3d}: reward {rewards.mean():.3f} kl {kl:9.2e} norm {step.grad_norm:.2e} {bar}", flush=True)
        print(f"it writes: {run.sample('ab', max_tokens=LENGTH, temperature=0).result()[0].text!r}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
