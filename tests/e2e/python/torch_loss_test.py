# SPDX-License-Identifier: Apache-2.0
"""Losses that a client computes with torch, against a real daemon on two ranks at MESHLOOM_ADDRESS."""

import unittest

import numpy as np
import torch

import meshloom

CONFIG = {"model": {"preset": "byte_gpt_tiny"}, "plan": {"dtype": "float32"},
          "training": {"seq_len": 64, "seed": 3}, "optimizer": {"type": "sgd", "lr": 0.1}}
LENGTHS = (20, 7, 13)
PARAMETERS = ["transformer.ln_f.weight", "transformer.wte.weight"]


def data() -> list[meshloom.Datum]:
    random = np.random.default_rng(5)
    return [meshloom.Datum.next_token(random.integers(0, 256, length + 1)) for length in LENGTHS]


def by_torch(_: object, logprobs: list[torch.Tensor]) -> tuple[torch.Tensor, dict[str, float]]:
    """Not linear, and over several data: the second one's mean against the first one's."""
    margin = logprobs[0].mean() - logprobs[1].mean()
    return torch.nn.functional.softplus(margin) + (logprobs[0] ** 2).sum() / 50, {"margin:mean": float(margin)}


def by_hand(_: object, logprobs: list[np.ndarray]) -> tuple[float, list[np.ndarray], dict[str, float]]:
    """The same loss in float64, with its gradient as formulas."""
    first, second, rest = (np.asarray(item, np.float64) for item in logprobs)
    margin = first.mean() - second.mean()
    slope = 1 / (1 + np.exp(-margin))
    loss = float(np.log1p(np.exp(margin)) + (first**2).sum() / 50)
    gradients = [slope / first.size + first / 25, np.full(second.shape, -slope / second.size), np.zeros(rest.shape)]
    return loss, [item.astype(np.float32) for item in gradients], {"margin:mean": float(margin)}


class TorchLossTest(unittest.TestCase):
    def setUp(self) -> None:
        self.client = meshloom.Client(name="torch-test")
        self.addCleanup(self.client.close)
        self.run_ = self.client.create_training_run(CONFIG)
        self.addCleanup(self.run_.close)

    def test_it_has_the_loss_the_metrics_and_the_step_of_its_formulas(self) -> None:
        start = self.run_.save_state("start").result().name
        told, weights = [], []
        for fn, framework in ((by_torch, "torch"), (by_hand, "numpy")):
            for _ in range(3):
                told.append(self.run_.forward_backward_custom(data(), fn, framework=framework).result(60).metrics)
                self.run_.optim_step()
            weights.append(self.run_.get_parameters(PARAMETERS).result(60))
            self.run_.load_state(start)
        for mine, known in zip(told[:3], told[3:]):
            self.assertAlmostEqual(mine["loss:sum"], known["loss:sum"], places=4)
            self.assertAlmostEqual(mine["margin:mean"], known["margin:mean"], places=5)
        self.assertNotEqual(told[0]["loss:sum"], told[2]["loss:sum"])
        for name in PARAMETERS:
            np.testing.assert_allclose(weights[0][name], weights[1][name], atol=2e-6)

    def test_a_step_follows_the_gradient(self) -> None:
        losses = []
        for _ in range(5):
            losses.append(self.run_.forward_backward_custom(data(), by_torch, framework="torch").result(60).loss_sum)
            self.run_.optim_step()
        self.assertEqual(losses, sorted(losses, reverse=True))
        self.assertLess(losses[-1], losses[0] - 0.01)

    def test_what_is_no_loss_is_refused_and_poisons_the_step(self) -> None:
        wrong = (lambda _, lps: lps[0], lambda _, lps: float(lps[0].sum()), lambda _, lps: (lps[0].sum(), {}, {}))
        for fn in wrong:
            with self.assertRaises(meshloom.InvalidArgument) as caught:
                self.run_.forward_backward_custom(data(), fn, framework="torch").result(60)
            self.assertEqual(caught.exception.field, "fn")
            with self.assertRaises(meshloom.GradientsPoisoned):
                self.run_.optim_step().result(60)
        with self.assertRaises(RuntimeError):  # torch's own: nothing of it has a gradient
            self.run_.forward_backward_custom(data(), lambda _, lps: lps[0].detach().sum(),
                                              framework="torch").result(60)
        with self.assertRaises(meshloom.GradientsPoisoned):
            self.run_.optim_step().result(60)
        self.run_.forward_backward_custom(data(), by_torch, framework="torch")
        self.assertEqual(self.run_.optim_step().result(60).step, 1)


if __name__ == "__main__":
    unittest.main()
