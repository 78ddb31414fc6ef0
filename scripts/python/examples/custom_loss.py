# SPDX-License-Identifier: Apache-2.0
"""A loss of your own through log-probs: direct preference optimisation of pairs (Rafailov et al., 2023).

Usage: custom_loss.py [STEPS]
C = -log sigmoid(beta * ((lp(chosen) - lp(rejected)) - the same of the weights at the start)), summed over pairs.
"""

import asyncio
import sys
from typing import Sequence

import numpy as np

import meshloom

BETA = 0.5
PAIRS = [("the sky is blue", "the sky is loud"), ("water is wet", "water is shy"), ("stone is hard", "stone is kind")]


def preference_loss(reference: np.ndarray):
    def loss(data: Sequence[meshloom.Datum], logprobs: Sequence[np.ndarray]):
        """The loss and its gradient by each log-prob; with framework="torch" the loss alone would be enough."""
        totals = np.array([float(lp.sum()) for lp in logprobs])
        margins = BETA * ((totals[0::2] - totals[1::2]) - reference)
        by_margin = -BETA / (1.0 + np.exp(margins))  # of chosen, and the opposite of rejected
        slopes = np.stack([by_margin, -by_margin], axis=1).reshape(-1)
        gradients = [np.full(lp.shape, slope) for lp, slope in zip(logprobs, slopes)]
        return np.log1p(np.exp(-margins)).sum(), gradients, {"right:sum": (margins > 0).sum()}

    return loss


async def main(steps: int) -> None:
    config = {"model": {"preset": "byte_gpt_tiny"}, "plan": {"dtype": "float32"},
              "training": {"seq_len": 32}, "optimizer": {"type": "sgd", "lr": 0.01}}
    data = [meshloom.Datum.next_token(np.frombuffer(text.encode(), np.uint8)) for pair in PAIRS for text in pair]
    with meshloom.Client() as client, client.create_training_run(config) as run:
        start = np.array([lp.sum() for lp in (await run.forward(data)).logprobs])
        loss = preference_loss(start[0::2] - start[1::2])
        for step in range(steps):
            result = run.forward_backward_custom(data, loss)
            update = run.optim_step()
            if step % 5 == 0 or step == steps - 1:
                done = await result
                print(f"step {step}: loss {done.loss_sum:.4f}, {done.metrics['right:sum']:.0f} of {len(PAIRS)} pairs "
                      f"right, gradient norm {(await update).grad_norm:.4f}")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
