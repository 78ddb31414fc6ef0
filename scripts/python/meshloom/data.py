# SPDX-License-Identifier: Apache-2.0
"""What verbs take and return, with numpy arrays wherever tokens or floats are."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from meshloom.messages import fill, refuse
from meshloom.v1 import config_pb2, operation_service_pb2, run_pb2, step_pb2

IntArray = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float32]


def as_ints(values: npt.ArrayLike, field: str) -> IntArray:
    """Whole numbers of 32 bits, flat. Raises InvalidArgument for others: nothing is rounded or wrapped."""
    array = np.asarray(values)
    if array.size == 0:
        return np.zeros(0, np.int32)
    if array.dtype.kind not in "iu":
        raise refuse(field, f"has values of type {array.dtype}, expected whole numbers")
    low, high = int(array.min()), int(array.max())
    if low < -(2**31) or high >= 2**31:
        raise refuse(field, f"has values from {low} to {high}, expected 32 bits")
    return array.astype(np.int32).reshape(-1)


def as_floats(values: npt.ArrayLike, field: str) -> FloatArray:
    """float32, flat; what is not finite is left for the daemon to refuse."""
    array = np.asarray(values)
    if array.dtype.kind not in "iufb":
        raise refuse(field, f"has values of type {array.dtype}, expected numbers")
    return array.astype(np.float32).reshape(-1)


@dataclasses.dataclass(repr=False)
class Datum:
    """One sequence of N tokens with what its loss needs. Targets are shifted already: those of position i are what
    tokens[i] is to be followed by. `targets` and `weights` may be (N, K), for cross_entropy alone.

    cross_entropy takes `weights` (any sign, default 1 each); the other losses `logprobs` (of the targets, under the
    weights that drew them) and `advantages`; gspo `sequence_ratio_mask` as well.
    """

    tokens: npt.ArrayLike
    targets: npt.ArrayLike
    weights: npt.ArrayLike | None = None
    logprobs: npt.ArrayLike | None = None
    advantages: npt.ArrayLike | None = None
    sequence_ratio_mask: npt.ArrayLike | None = None
    document_ids: npt.ArrayLike | None = None
    position_ids: npt.ArrayLike | None = None

    @classmethod
    def next_token(cls, tokens: npt.ArrayLike, **inputs: Any) -> Datum:
        """Of a sequence of N + 1 tokens: each is to be followed by the next."""
        array = as_ints(tokens, "tokens")
        return cls(array[:-1], array[1:], **inputs)

    def __repr__(self) -> str:
        given = [name for name in ("weights", "logprobs", "advantages", "sequence_ratio_mask", "document_ids",
                                   "position_ids") if getattr(self, name) is not None]
        return f"Datum({', '.join([f'{np.size(self.tokens)} tokens', *given])})"

    def to_message(self) -> step_pb2.Datum:
        targets = np.asarray(self.targets)
        message = step_pb2.Datum(targets_per_token=targets.shape[1] if targets.ndim == 2 else None)
        message.tokens.extend(as_ints(self.tokens, "tokens").tolist())
        message.targets.extend(as_ints(targets, "targets").tolist())
        for name in ("weights", "logprobs", "advantages", "sequence_ratio_mask"):
            if getattr(self, name) is not None:
                getattr(message, name).extend(as_floats(getattr(self, name), name).tolist())
        for name in ("document_ids", "position_ids"):
            if getattr(self, name) is not None:
                getattr(message, name).extend(as_ints(getattr(self, name), name).tolist())
        return message


@dataclasses.dataclass(frozen=True)
class DataReference:
    """Samples of a file or folder below the daemon's data dir, which its ranks read themselves: for cross_entropy.

    `data` is a path, or as the section `data` of a job file. Samples are those of a job on the same data: epoch
    `epoch` in the order that the run's seed decides, from `first_sample` on. `seq_len`: by default the run's longest
    datum. `identity`: LossResult.data_identity of an earlier call; other data fail with DATA_CHANGED.
    """

    data: str | Mapping[str, Any]
    samples: int
    first_sample: int = 0
    epoch: int = 0
    seq_len: int | None = None
    identity: config_pb2.DataIdentity | None = None

    def to_message(self) -> step_pb2.DataReference:
        message = step_pb2.DataReference(samples=self.samples, first_sample=self.first_sample, epoch=self.epoch,
                                         seq_len=self.seq_len)
        fill(message.data, {"path": self.data} if isinstance(self.data, str) else self.data, "data")
        if self.identity is not None:
            message.data.identity.CopyFrom(self.identity)
        return message


REDUCTIONS = {"sum": step_pb2.LOSS_REDUCTION_SUM, "token_mean": step_pb2.LOSS_REDUCTION_TOKEN_MEAN}


def loss_batch(data: Sequence[Datum] | DataReference, loss: str, loss_config: Mapping[str, float] | None,
               reduction: str, tokens: int, micro_batch_size: int | None) -> step_pb2.LossBatch:
    if reduction not in REDUCTIONS:
        raise refuse("reduction", f"{reduction!r} is unknown, expected one of {', '.join(REDUCTIONS)}")
    batch = step_pb2.LossBatch(loss=loss, reduction=REDUCTIONS[reduction], tokens=tokens,
                               micro_batch_size=micro_batch_size, loss_config=dict(loss_config or {}))
    if isinstance(data, DataReference):
        batch.reference.CopyFrom(data.to_message())
    else:
        batch.data.extend(datum.to_message() for datum in data)
    return batch


@dataclasses.dataclass(frozen=True, repr=False)
class LossResult:
    """Of each datum `logprobs` of its targets (in their shape) and `losses` of its tokens; `metrics` by
    "name:reduction", "loss:sum" and "tokens:sum" always among them. `data_identity`: of what a DataReference named."""

    logprobs: list[FloatArray]
    losses: list[FloatArray]
    metrics: dict[str, float]
    data_identity: config_pb2.DataIdentity | None = None

    @property
    def loss(self) -> float:
        """The mean over the tokens that count, as everywhere in this package; NaN over none."""
        tokens = self.tokens
        return self.loss_sum / tokens if tokens else math.nan

    @property
    def loss_sum(self) -> float:
        """The sum over all tokens."""
        return self.metrics["loss:sum"]

    @property
    def tokens(self) -> int:
        """Targets that count."""
        return int(self.metrics["tokens:sum"])

    def __repr__(self) -> str:
        return f"LossResult(loss={self.loss:.6g} over {self.tokens} tokens, {len(self.losses)} data)"


def shapes_of(data: Sequence[Datum] | DataReference) -> list[tuple[int, ...]]:
    """Of log-probs; all flat where the ranks have read the data."""
    if isinstance(data, DataReference):
        return [(-1,)] * data.samples
    return [np.shape(item.targets) for item in data]


def loss_result(result: run_pb2.VerbResult, shapes: Sequence[tuple[int, ...]]) -> LossResult:
    outputs = result.loss.outputs
    return LossResult([np.array(item.logprobs, np.float32).reshape(shape) for item, shape in zip(outputs, shapes)],
                      [np.array(item.losses, np.float32) for item in outputs], dict(result.loss.metrics),
                      result.loss.data_identity if result.loss.HasField("data_identity") else None)


@dataclasses.dataclass(frozen=True)
class OptimStepResult:
    """`step`: optimizer steps done; `grad_norm` before clipping; `loss` of all calls since the last step: the mean over
    their `tokens`, the targets that count, however the gradients were reduced."""

    step: int
    grad_norm: float
    lr: float
    seconds: float
    loss: float
    tokens: int


@dataclasses.dataclass(frozen=True)
class SavedState:
    """`name` is what load_state and create_training_run(state=...) take; `next_seq` the number behind it;
    `ttl_seconds` how long it is kept while a daemon runs, 0 until it is deleted."""

    name: str
    step: int
    next_seq: int
    epoch: int
    user_metadata: dict[str, str]
    ttl_seconds: int


def saved_state(message: run_pb2.SavedState) -> SavedState:
    return SavedState(message.name, message.step, message.next_seq, message.epoch, dict(message.user_metadata),
                      message.ttl_seconds)


@dataclasses.dataclass(frozen=True, repr=False)
class SampledSequence:
    """`tokens` that continue prompt number `prompt`, with their log-probs under the model's own distribution, and
    under that at the temperature where it is not 1. `finish_reason`: length, eos, stop_token, stop_string or
    context.
    `weights_step`: optimizer steps behind the weights that drew its last token, `first_weights_step` its first.
    `seed`: a sample of the prompt alone with this one gets the same tokens.
    `exact_logprobs`: the bits that forward gives, where they were asked for; `prompt_logprobs` likewise, of the
    prompt's tokens but the first."""

    prompt: int
    tokens: IntArray
    logprobs: FloatArray
    tempered_logprobs: FloatArray | None
    finish_reason: str
    weights_step: int
    first_weights_step: int
    seed: int
    exact_logprobs: FloatArray | None
    prompt_logprobs: FloatArray | None
    text_bytes: bytes | None  #: what the daemon made of the tokens; None where they have no text

    @property
    def text(self) -> str:
        """Of models of 256 bytes and of those with a tokenizer; up to a stop string. InvalidArgument for others."""
        if self.text_bytes is None:
            raise refuse("text", "the model has neither 256 tokens nor a tokenizer, so that its tokens have no text")
        return self.text_bytes.decode("utf-8", errors="replace")

    def __repr__(self) -> str:
        text = f"{len(self.tokens)} tokens" if self.text_bytes is None else repr(_shortened(self.text))
        return f"SampledSequence({text}, {len(self.tokens)} tokens, {self.finish_reason}, seed={self.seed})"


def _shortened(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."


def _floats(values: Sequence[float]) -> FloatArray:
    return np.array(values, np.float32)


def sampled_sequences(result: run_pb2.VerbResult) -> list[SampledSequence]:
    prompts = result.sample.prompts
    return [
        SampledSequence(item.prompt, np.array(item.token_ids, np.int32), _floats(item.logprobs),
                        _floats(item.tempered_logprobs) if item.tempered_logprobs else None, item.finish_reason,
                        item.weights_step, item.first_weights_step, item.seed,
                        _floats(item.exact_logprobs) if item.exact_logprobs else None,
                        _floats(prompts[item.prompt].logprobs) if prompts else None,
                        item.text if item.HasField("text") else None)
        for item in result.sample.sequences
    ]


@dataclasses.dataclass(frozen=True)
class SampledTokens:
    """What sequence number `sequence` of a sample has drawn since it was told of last, `first` the index of the first
    of these tokens in it; `text` of models of 256 bytes, and whole characters of those with a tokenizer;
    `finish_reason` with the last."""

    sequence: int
    first: int
    tokens: IntArray
    logprobs: FloatArray
    tempered_logprobs: FloatArray | None
    text: bytes
    finish_reason: str


def sampled_tokens(message: operation_service_pb2.SampledTokens) -> SampledTokens:
    return SampledTokens(message.sequence, message.first, np.array(message.token_ids, np.int32),
                         _floats(message.logprobs),
                         _floats(message.tempered_logprobs) if message.tempered_logprobs else None, message.text,
                         message.finish_reason)


def parameter_values(parameters: Mapping[str, npt.ArrayLike]) -> list[step_pb2.ParameterValue]:
    values = []
    for name, given in parameters.items():
        array = np.asarray(given)
        if array.dtype.kind not in "iuf":
            raise refuse(f"parameters[{name}]", f"has values of type {array.dtype}, expected numbers")
        values.append(step_pb2.ParameterValue(name=name, dtype="float32", shape=array.shape,
                                              data=array.astype("<f4").tobytes()))
    return values


def parameter_arrays(result: run_pb2.VerbResult) -> dict[str, FloatArray]:
    return {item.name: np.frombuffer(item.data, "<f4").reshape(tuple(item.shape)).astype(np.float32)
            for item in result.parameters.parameters}
