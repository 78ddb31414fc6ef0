# SPDX-License-Identifier: Apache-2.0
"""TrainingRun: a model on the daemon's ranks with its optimizer, driven verb by verb."""

from __future__ import annotations

import math
import threading
import time
import weakref
from types import TracebackType
from typing import Any, Callable, Mapping, Sequence

import numpy.typing as npt

from meshloom import custom_loss, data as shapes, errors
from meshloom.connection import CALL_SECONDS, Connection
from meshloom.data import DataReference, Datum, FloatArray, LossResult, OptimStepResult, SavedState
from meshloom.future import Future
from meshloom.generation import random_seed, sample_stop
from meshloom.hints import hinted
from meshloom.lease import Lease
from meshloom.messages import fill, short_name
from meshloom.prompts import Prompt, prompt_message, several
from meshloom.sample import SampleFuture
from meshloom.sampling import SampleStream
from meshloom.tokenizer import Tokenizer
from meshloom.v1 import run_pb2, run_service_pb2, step_pb2
from meshloom.verbs import Verb, VerbStream
from meshloom.weights import SavedWeights, saved_weights

_DEFAULT_LEASE_SECONDS = 600  # the daemon's, of a run that was made without


@hinted
class TrainingRun:
    """Made by Client. Every verb returns a Future at once and several may be under way: ordered verbs (all but
    `sample`) run in the order of the calls, whatever thread makes them. `with` closes the run at its end.

    Gradients add up over calls of forward_backward until optim_step takes them. One that fails poisons them: the next
    optim_step raises GradientsPoisoned and discards them. Heartbeats keep the lease while this object lives: where it
    or its process is gone the daemon saves the run, closes it and gives the ranks back, after `lease_seconds`.
    """

    def __init__(self, connection: Connection, run: run_pb2.Run, token: str) -> None:
        self.name: str = run.name  #: "runs/NAME"
        self.token = token  #: opens the run again: Client.open_training_run(name, token)
        self._connection = connection
        self._last = run
        self._closed = threading.Event()
        # What has threads holds nothing of this object: one that nobody has any more gives its lease up.
        verbs = VerbStream(connection, run.name, token, run.epoch, run.next_seq)
        lease = Lease(connection, run.name, token, run.spec.lease_seconds or _DEFAULT_LEASE_SECONDS)
        samples = SampleStream(connection, run.name, token, lambda: verbs.epoch,
                               lambda: wait_ready(connection, run.name, token))
        self._verbs, self._samples, self._lease = verbs, samples, lease
        weakref.finalize(self, _let_go, verbs, samples, lease).atexit = False

    def __enter__(self) -> TrainingRun:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if kind is None:
            self._verbs.stop()
            self._samples.stop()
        self.close()

    # --- Training.

    def forward_backward(self, data: Sequence[Datum] | DataReference, loss: str = "cross_entropy", *,
                         loss_config: Mapping[str, float] | None = None, reduction: str = "sum", tokens: int = 0,
                         micro_batch_size: int | None = None) -> Future[LossResult]:
        """Adds the gradients of the loss, summed over all tokens of all data, to those since the last optim_step.

        `loss`: cross_entropy, importance_sampling, ppo, cispo, dro or gspo; `loss_config` their
        clip_low_threshold, clip_high_threshold and beta. `reduction` "token_mean" divides by the targets of all calls
        of the step, or by `tokens` at once. `micro_batch_size`: data computed at once on a rank, the run's
        where it is left out. A DataReference in place of data is read by the ranks themselves.
        """
        return self._loss("forward_backward", lambda: run_service_pb2.ForwardBackwardRequest(
            batch=shapes.loss_batch(data, loss, loss_config, reduction, tokens, micro_batch_size)), data)

    def forward(self, data: Sequence[Datum] | DataReference, loss: str = "cross_entropy", *,
                loss_config: Mapping[str, float] | None = None, reduction: str = "sum", tokens: int = 0,
                micro_batch_size: int | None = None, train: bool = False) -> Future[LossResult]:
        """The same log-probs, losses and metrics, bit for bit, without gradients. `train`: with the dropout that the
        next forward_backward would draw."""
        return self._loss("forward", lambda: run_service_pb2.ForwardRequest(
            batch=shapes.loss_batch(data, loss, loss_config, reduction, tokens, micro_batch_size), train=train), data)

    def forward_backward_custom(self, data: Sequence[Datum], fn: custom_loss.LossFunction, *,
                                framework: str = "numpy", micro_batch_size: int | None = None) -> Future[LossResult]:
        """A loss of your own: `fn(data, logprobs)` gets the log-probs of every datum's targets and returns the loss C.

        `framework` "numpy": `logprobs` are arrays and `fn` returns (C, [dC/dlogprobs...]). "torch", where it is
        installed: they are tensors with gradients and `fn` returns a scalar tensor. Metrics may be the last of a tuple:
        (C, gradients, metrics) or (C, metrics).

        Costs one forward more: then cross_entropy with the weights -dC/dlogprobs gives C's gradient. `fn` runs on a
        thread of its own; verbs that are called later wait for it. In the result "loss:sum" is C.
        """
        custom = custom_loss.CustomLoss(data, fn, framework)
        plain = [Datum(item.tokens, item.targets, document_ids=item.document_ids, position_ids=item.position_ids)
                 for item in data]
        first = self._loss_verb("forward", lambda: run_service_pb2.ForwardRequest(
            batch=shapes.loss_batch(plain, "cross_entropy", None, "sum", 0, micro_batch_size), train=True), plain)

        def weighted() -> run_service_pb2.ForwardBackwardRequest:
            batch = shapes.loss_batch(custom.weighted(first.future.result()), "cross_entropy", None, "sum", 0,
                                      micro_batch_size)
            return run_service_pb2.ForwardBackwardRequest(batch=batch)

        second = self._loss_verb("forward_backward", weighted, plain)
        read = second.read
        second.read = lambda result: custom.result(read(result))
        self._verbs.submit(first, second)
        return second.future

    def optim_step(self, *, lr: float | None = None, beta1: float | None = None, beta2: float | None = None,
                   eps: float | None = None, weight_decay: float | None = None, momentum: float | None = None,
                   grad_clip_norm: float | None = None) -> Future[OptimStepResult]:
        """Clips, updates and zeroes the gradients. What is left out is as the run was made; a value that its kind of
        optimizer has no use for is refused. grad_clip_norm 0: not clipped."""
        given = {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": weight_decay,
                 "momentum": momentum, "grad_clip_norm": grad_clip_norm}
        params = {name: value for name, value in given.items() if value is not None}

        def read(result: run_pb2.VerbResult) -> OptimStepResult:
            out = result.optim_step
            mean = out.mean_loss if out.HasField("mean_loss") else math.nan
            return OptimStepResult(out.step, out.grad_norm, out.lr, out.seconds, mean, out.tokens)

        return self._submit("optim_step", self._connection.runs.OptimStep, lambda: run_service_pb2.OptimStepRequest(
            params=fill(step_pb2.OptimStepParams(), params)), read)

    # --- Sampling.

    def sample(self, prompts: Prompt | Sequence[Prompt], *, samples: int = 1, max_tokens: int | None = None,
               temperature: float | None = None, top_k: int = 0, top_p: float | None = None, seed: int | None = None,
               weights: str | SavedWeights = "", weights_step: int | None = None, stop_tokens: Sequence[int] = (),
               stop_strings: Sequence[str | bytes] = (), ignore_eos: bool = False, past_context: bool = False,
               prompt_logprobs: bool = False, exact_logprobs: bool = False) -> SampleFuture:
        """Continues each prompt `samples` times; a prompt is text (models of 256 bytes, or with a tokenizer), token ids,
        or a conversation ([{"role": "user", "content": "..."}]; models with a chat template). The first sequence is
        drawn with `seed` (another one each time), each further one with a seed made from it, which the sequence tells.
        The future's `watch()` tells the tokens as they are drawn; `cancel()` ends it, at any time. All samples are sent at once.

        Not ordered: it draws from the weights as they are then. To draw from those after an optim_step, wait for its
        result first; `weights_step` makes sure (WEIGHTS_STALE otherwise). `weights`: what save_weights gave, whatever
        is trained meanwhile; those on disk are read anew unless another sample draws from them.

        A sequence ends with a stop token, with the byte that completes a stop string, with the model's end of text
        unless `ignore_eos`, at `max_tokens` (256), or where the model's context is full: with `past_context` it goes on from
        the last half of it. `prompt_logprobs` and `exact_logprobs`: the bits that forward gives.
        """
        params = {"max_tokens": max_tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p,
                  "seed": random_seed() if seed is None else seed, "past_context": past_context}
        stop = sample_stop(stop_tokens, stop_strings, ignore_eos)
        request = run_service_pb2.SampleRequest(
            run=self.name, samples=samples, weights_step=weights_step, stop=stop, prompt_logprobs=prompt_logprobs,
            weights=weights if isinstance(weights, str) else weights.name, exact_logprobs=exact_logprobs)
        request.prompts.extend(prompt_message(item) for item in several(prompts))
        fill(request.params, {name: value for name, value in params.items() if value is not None}, "params")
        future = SampleFuture(self._connection, self.token)
        future._cancel = self._verbs._cancel
        self._samples.submit(future, request)
        return future

    # --- States and parameters.

    def save_state(self, name: str, *, overwrite: bool = False, ttl_seconds: int = 0,
                   user_metadata: Mapping[str, str] | None = None) -> Future[SavedState]:
        """Weights, moments and step, durable once the future has its result. Gathered gradients are no part of it.
        `ttl_seconds`: how long it is kept while a daemon runs, 0 until it is deleted; the newest of an open run stays
        in any case."""
        return self._submit("save_state", self._connection.runs.SaveState, lambda: run_service_pb2.SaveStateRequest(
            name=name, overwrite=overwrite, ttl_seconds=ttl_seconds, user_metadata=dict(user_metadata or {})),
            lambda result: shapes.saved_state(result.saved_state))

    def saved_states(self) -> list[SavedState]:
        """All saved states of the run, oldest first."""
        request = run_service_pb2.ListStatesRequest(run=self.name)
        pages = self._connection.pages(self._connection.runs.ListStates, request)
        return [shapes.saved_state(state) for page in pages for state in page.states]

    def load_state(self, state: str, *, with_optimizer: bool = True) -> Future[None]:
        """`state`: the name that save_state gave, of any run ("runs/RUN/states/NAME"). Drops gathered gradients."""
        return self._submit("load_state", self._connection.runs.LoadState, lambda: run_service_pb2.LoadStateRequest(
            state=state, without_optimizer=not with_optimizer), lambda result: None)

    def save_weights(self, name: str, *, dtype: str = "", memory: bool = False) -> Future[SavedWeights]:
        """Keeps the weights under a name: as a Hugging Face folder on the host of rank 0, which `download()` copies
        (`dtype`: float32, the default, bfloat16 or float16), or in the memory of the ranks, to sample from after later
        steps. Those in memory are gone when the run closes or its epoch ends."""
        storage = run_pb2.WEIGHTS_STORAGE_MEMORY if memory else run_pb2.WEIGHTS_STORAGE_DISK
        return self._submit("save_weights", self._connection.runs.SaveWeights,
                            lambda: run_service_pb2.SaveWeightsRequest(name=name, dtype=dtype, storage=storage),
                            lambda result: saved_weights(result.saved_weights, self._connection, self.token))

    def get_parameters(self, names: Sequence[str]) -> Future[dict[str, FloatArray]]:
        """Whole parameters, named as in the model's Hugging Face folder."""
        return self._submit("get_parameters", self._connection.runs.GetParameters,
                            lambda: run_service_pb2.GetParametersRequest(names=names), shapes.parameter_arrays)

    def set_parameters(self, parameters: Mapping[str, npt.ArrayLike]) -> Future[None]:
        """Replaces whole parameters; all are checked before one is written. Moments stay, gathered gradients go."""
        return self._submit("set_parameters", self._connection.runs.SetParameters,
                            lambda: run_service_pb2.SetParametersRequest(
                                parameters=shapes.parameter_values(parameters)), lambda result: None)

    # --- The run itself.

    def info(self) -> run_pb2.Run:
        """The run as the daemon sees it."""
        self._last = _get(self._connection, self.name, self.token)
        return self._last

    @property
    def state(self) -> str:
        """queued, creating, ready, recovering, closing, closed or failed, asked of the daemon."""
        return short_name(run_pb2.RunState.DESCRIPTOR, self.info().state)

    @property
    def tokenizer(self) -> Tokenizer:
        """Text to the model's tokens and back, and conversations by its chat template."""
        model = (self._last if self._last.HasField("resolved") else self.info()).resolved.model
        return Tokenizer(self._connection, model)

    def wait_ready(self, timeout: float | None = None) -> run_pb2.Run:
        """Waits until the run has the ranks. Raises its cause where it has ended, TimeoutError after `timeout`."""
        self._last = wait_ready(self._connection, self.name, self.token, timeout)
        return self._last

    def recover(self) -> SavedState | None:
        """After RunRecovered: waits until the run is ready again and goes on with its epoch and next number. Returns
        the state that it began anew from; None: its initial weights."""
        run = self.wait_ready()
        self._verbs.begin_epoch(run.epoch, run.next_seq)
        readable = [state for state in run.saved if not state.HasField("damage")]
        return shapes.saved_state(readable[-1]) if readable else None

    def close(self) -> None:
        """Gives the ranks back. What waits is cancelled; saved states stay. Returns once the daemon is done with the
        run, so that its model and its plan can be deleted, or after 30 s."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._lease.stop()
        try:
            request = run_service_pb2.CloseRunRequest(name=self.name)
            self._connection.call(self._connection.runs.CloseRun, request, self.token)
        finally:
            self._verbs.stop()
            self._samples.stop()
        end = time.monotonic() + CALL_SECONDS
        while time.monotonic() < end and self._is_closing():
            time.sleep(0.02)

    def detach(self) -> None:
        """Ends this object and its heartbeats once all verbs have ended; the run stays for as long as its lease."""
        self._closed.set()
        self._verbs.stop()
        self._samples.stop()
        self._lease.stop()

    def __repr__(self) -> str:
        run = self._last
        model = run.spec.config.model
        named = [getattr(model, field) for field in ("preset", "config", "hf_folder", "name") if getattr(model, field)]
        state = "closed" if self._closed.is_set() else short_name(run_pb2.RunState.DESCRIPTOR, run.state)
        return f"<TrainingRun {self.name}: {state}, step {run.step}, {', '.join(named) or 'no model'}>"

    def _is_closing(self) -> bool:
        request = run_service_pb2.GetRunRequest(name=self.name)
        try:
            run = self._connection.call(self._connection.runs.GetRun, request, self.token, retry_seconds=0.0).run
        except errors.MeshloomError:
            return False  # the close itself was answered
        return run.state == run_pb2.RUN_STATE_CLOSING

    def _loss_verb(self, name: str, make: Callable[[], Any], data: Sequence[Datum] | DataReference) -> Verb:
        runs = self._connection.runs
        return Verb(name, runs.Forward if name == "forward" else runs.ForwardBackward, make,
                    lambda result: shapes.loss_result(result, shapes.shapes_of(data)), Future(name))

    def _loss(self, name: str, make: Callable[[], Any], data: Sequence[Datum] | DataReference) -> Future[LossResult]:
        request = make()  # now: the caller may change the arrays afterwards, and gets what is wrong at once
        verb = self._loss_verb(name, lambda: request, data)
        self._verbs.submit(verb)
        return verb.future

    def _submit(self, name: str, method: Any, make: Callable[[], Any],
                read: Callable[[run_pb2.VerbResult], Any]) -> Future[Any]:
        request = make()
        verb = Verb(name, method, lambda: request, read, Future(name))
        self._verbs.submit(verb)
        return verb.future


def wait_ready(connection: Connection, name: str, token: str, timeout: float | None = None) -> run_pb2.Run:
    """The run once it has the ranks, see TrainingRun.wait_ready."""
    end = None if timeout is None else time.monotonic() + timeout
    while (run := _get(connection, name, token)).state != run_pb2.RUN_STATE_READY:
        if run.state in (run_pb2.RUN_STATE_FAILED, run_pb2.RUN_STATE_CLOSED, run_pb2.RUN_STATE_CLOSING):
            raise (errors.from_details(run.cause) if run.HasField("cause") else
                   errors.RunClosed(f"{name} is closed", reason="RUN_CLOSED"))
        if end is not None and time.monotonic() > end:
            waits = run.wait.reason or f"behind {', '.join(run.ahead) or 'nobody'}"
            raise TimeoutError(f"{name} does not have the ranks after {timeout} s, it waits: {waits}")
        time.sleep(0.02)
    return run


def _get(connection: Connection, name: str, token: str) -> run_pb2.Run:
    run: run_pb2.Run = connection.call(connection.runs.GetRun, run_service_pb2.GetRunRequest(name=name), token).run
    return run


def _let_go(verbs: VerbStream, samples: SampleStream, lease: Lease) -> None:
    """Of a run that nobody has any more: what is under way ends, and the lease with it."""
    lease.stop()
    verbs.end()
    samples.end()
