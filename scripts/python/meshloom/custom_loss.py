# SPDX-License-Identifier: Apache-2.0
"""Losses that a client computes from log-probs.

For a loss C of log-probs lp, cross_entropy with the weights w = -dC/dlp has the gradient sum of dC/dlp * dlp/dtheta,
which is C's own.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import math
from typing import Any, Callable, Mapping, Sequence

import numpy as np

from meshloom.data import Datum, FloatArray, LossResult
from meshloom.messages import refuse

LossFunction = Callable[[Sequence[Datum], Sequence[Any]], Any]


class CustomLoss:
    """One call of forward_backward_custom."""

    def __init__(self, data: Sequence[Datum], fn: LossFunction, framework: str) -> None:
        if framework not in ("numpy", "torch"):
            raise refuse("framework", f"{framework!r} is unknown, expected numpy or torch")
        if framework == "torch" and importlib.util.find_spec("torch") is None:
            raise refuse("framework", "torch is not installed here; numpy needs no more than this package does")
        self._data = list(data)
        self._fn = fn
        self._gradients = _with_torch if framework == "torch" else _with_numpy
        self._value = math.nan
        self._metrics: dict[str, float] = {}

    def weighted(self, forward: LossResult) -> list[Datum]:
        """The data whose cross_entropy has the gradient of the loss."""
        self._value, gradients, self._metrics = self._gradients(self._fn, self._data, forward.logprobs)
        if len(gradients) != len(self._data):
            raise refuse("fn", f"gave gradients for {len(gradients)} data, expected {len(self._data)}")
        weighted = []
        for index, (datum, logprobs, gradient) in enumerate(zip(self._data, forward.logprobs, gradients)):
            if gradient.shape != logprobs.shape:
                raise refuse("fn", f"gave a gradient of shape {gradient.shape} for datum {index}, expected "
                                   f"{logprobs.shape}")
            weighted.append(Datum(datum.tokens, datum.targets, weights=-gradient, document_ids=datum.document_ids,
                                  position_ids=datum.position_ids))
        return weighted

    def result(self, surrogate: LossResult) -> LossResult:
        """"loss:sum" is the loss itself; what the daemon summed is kept as "surrogate_loss:sum"."""
        metrics = dict(surrogate.metrics)
        metrics["surrogate_loss:sum"] = metrics["loss:sum"]
        metrics["loss:sum"] = self._value
        metrics.update(self._metrics)
        return dataclasses.replace(surrogate, metrics=metrics)


Evaluated = tuple[float, list[FloatArray], dict[str, float]]


def _with_numpy(fn: LossFunction, data: Sequence[Datum], logprobs: Sequence[FloatArray]) -> Evaluated:
    returned = fn(data, logprobs)
    if not isinstance(returned, tuple) or len(returned) not in (2, 3):
        raise refuse("fn", f"returned {type(returned).__name__}, expected (loss, gradients) or (loss, gradients, "
                           f"metrics)")
    return float(returned[0]), [np.asarray(item, np.float32) for item in returned[1]], _metrics(returned[2:])


def _with_torch(fn: LossFunction, data: Sequence[Datum], logprobs: Sequence[FloatArray]) -> Evaluated:
    import torch  # where it is installed

    tensors = [torch.from_numpy(item.copy()).requires_grad_() for item in logprobs]
    returned = fn(data, tensors)
    loss, *rest = returned if isinstance(returned, tuple) else (returned,)
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or len(rest) > 1:
        raise refuse("fn", f"returned {type(loss).__name__}, expected a scalar tensor or (scalar tensor, metrics)")
    loss.backward()
    gradients = [np.zeros_like(item) if tensor.grad is None else tensor.grad.numpy()
                 for item, tensor in zip(logprobs, tensors)]
    return float(loss.item()), gradients, _metrics(rest)


def _metrics(rest: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: float(value) for given in rest for name, value in given.items()}
