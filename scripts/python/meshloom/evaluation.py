# SPDX-License-Identifier: Apache-2.0
"""Evaluation: the loss of a model on data, computed by the daemon's ranks."""

from __future__ import annotations

import dataclasses
import logging
import math
from typing import Any, Callable, Mapping

from meshloom.connection import Connection
from meshloom.messages import fill
from meshloom.sources import set_source
from meshloom.v1 import evaluate_service_pb2

logger = logging.getLogger("meshloom")

EvaluationProgress = Callable[[int, float], None]  #: of tokens that count so far, and the loss over them


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """`loss`: mean over the `tokens` that count. `computed_tokens`: those that the model has seen, more than count
    where some alone are predicted. `bits_per_byte`: the loss by bytes of text, None where the text is not known.
    `source`: what was evaluated."""

    loss: float
    perplexity: float
    bits_per_byte: float | None
    tokens: int
    computed_tokens: int
    batches: int
    seconds: float
    tokens_per_second: float
    source: str
    dtype: str
    seq_len: int
    global_batch_size: int


def evaluate(connection: Connection, source: Any, data: str | Mapping[str, Any] | None, fields: Mapping[str, Any],
             progress: EvaluationProgress | None) -> Evaluation:
    request = evaluate_service_pb2.EvaluateRequest()
    set_source(request, source)
    if data is not None:
        fill(request.data, {"path": data} if isinstance(data, str) else data, "data")
    fill(request, {name: value for name, value in fields.items() if value is not None})
    result = evaluate_service_pb2.Evaluation(loss=math.nan)
    behind: list[str] | None = None
    for message in connection.stream(connection.evaluation.Evaluate, lambda: request):
        if message.HasField("result"):
            result = message.result
        elif message.HasField("wait"):
            if (now := list(message.wait.behind)) != behind:  # times alone are nothing new
                logger.warning("the evaluation waits for the ranks: %s", message.wait.wait.reason)
            behind = now
        elif progress is not None and message.HasField("progress"):
            progress(message.progress.tokens, message.progress.loss)
    bits = result.bits_per_byte if result.HasField("bits_per_byte") else None
    return Evaluation(result.loss, result.perplexity, bits, result.tokens, result.computed_tokens, result.batches,
                      result.seconds, result.tokens_per_second, result.source, result.dtype, result.seq_len,
                      result.global_batch_size)
