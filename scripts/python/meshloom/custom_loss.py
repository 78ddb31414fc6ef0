# SPDX-License-Identifier: Apache-2.0
"""Losses that a client computes from log-probs.

For a loss C of log-probs lp, cross_entropy with the weights w = -dC/dlp has the gradient sum of dC/dlp * dlp/dtheta,
which is C's own.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Callable, Mapping, Sequence

import numpy as np

from meshloom.data import Datum, FloatArray, LossResult
from meshloom.messages import refuse

try:
    import torch
except ImportError:
    torch = None

LossFunction = Callable[[Sequence[Datum], Sequence[Any]], Any]


class CustomLoss:
    """One call of forward_backward_custom."""

    def __init__(self, data: Sequence[Datum], fn: LossFunction) -> None:
        self._data = list(data)
        self._fn = fn
        self._value = math.nan
        self._metrics: dict[str, float] = {}

    def weighted(self, forward: LossResult) -> list[Datum]:
        """The data whose cross_entropy has the gradient of the loss."""
        gradients = self._gradients(forward.logprobs)
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

    def _gradients(self, logprobs: Sequence[FloatArray]) -> list[FloatArray]:
        if torch is None:
            return self._keep(self._fn(self._data, logprobs))
        tensors = [torch.from_numpy(item.copy()).requires_grad_() for item in logprobs]
        returned = self._fn(self._data, tensors)
        loss, *rest = returned if isinstance(returned, tuple) else (returned,)
        if not isinstance(loss, torch.Tensor):
            return self._keep(returned)
        loss.backward()
        self._keep_values(loss.item(), rest[0] if rest else {})
        return [np.zeros_like(item) if tensor.grad is None else tensor.grad.numpy()
                for item, tensor in zip(logprobs, tensors)]

    def _keep(self, returned: Any) -> list[FloatArray]:
        if not isinstance(returned, tuple) or len(returned) not in (2, 3):
            raise refuse("fn", "returned no (loss, gradients): without torch the gradients by the log-probs are needed")
        self._keep_values(returned[0], returned[2] if len(returned) == 3 else {})
        return [np.asarray(item, np.float32) for item in returned[1]]

    def _keep_values(self, loss: float, metrics: Mapping[str, float]) -> None:
        self._value = float(loss)
        self._metrics = {name: float(value) for name, value in metrics.items()}
