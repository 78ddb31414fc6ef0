# SPDX-License-Identifier: Apache-2.0
"""VerbStream: the ordered verbs of one run, numbered in the order of the calls, sent and collected by two threads."""

from __future__ import annotations

import dataclasses
import queue
import threading
from typing import Any, Callable

from meshloom import errors, uploads
from meshloom.connection import Connection
from meshloom.future import Future
from meshloom.v1 import operation_service_pb2, run_pb2, run_service_pb2


@dataclasses.dataclass
class Verb:
    """`make` gives the request without its id and may wait for verbs before it; `read` turns the answer into what
    `future` returns."""

    name: str
    method: Any
    make: Callable[[], Any]
    read: Callable[[run_pb2.VerbResult], Any]
    future: Future[Any]
    epoch: int = 0
    seq: int = 0


class VerbStream:
    """`submit` may be called by several threads and never waits for the daemon. A verb that never reached a handler
    there (too large, text that is not UTF-8, connection lost for good) leaves a gap in the numbers, which Skip closes.
    """

    def __init__(self, connection: Connection, run: str, token: str, epoch: int, next_seq: int) -> None:
        self._connection = connection
        self._run = run
        self._token = token
        self._lock = threading.RLock()  # a run may be let go by a collection of garbage in here
        self._epoch = epoch
        self._next_seq = next_seq
        self._to_send: queue.SimpleQueue[Verb | None] = queue.SimpleQueue()
        self._to_collect: queue.SimpleQueue[Verb | None] = queue.SimpleQueue()
        self._missing: list[Verb] = []  # never arrived, not skipped yet; the sender's
        self._sender = threading.Thread(target=self._send_all, name=f"{run} sender", daemon=True)
        self._collector = threading.Thread(target=self._collect_all, name=f"{run} collector", daemon=True)
        self._stopped = False
        self._sender.start()
        self._collector.start()

    @property
    def epoch(self) -> int:
        with self._lock:
            return self._epoch

    def begin_epoch(self, epoch: int, next_seq: int) -> None:
        """Numbers go on from there; what is still to be sent fails with RunRecovered."""
        with self._lock:
            self._epoch, self._next_seq = epoch, next_seq

    def submit(self, *verbs: Verb) -> None:
        """Gives them numbers one behind the other."""
        self._connection.check_process()
        with self._lock:
            if self._stopped:
                raise errors.RunClosed(f"{self._run} was closed by this client", reason="RUN_CLOSED")
            for verb in verbs:
                verb.epoch, verb.seq = self._epoch, self._next_seq
                self._next_seq += 1
                verb.future.seq = verb.seq
                verb.future._cancel = self._cancel
                self._to_send.put(verb)

    def end(self) -> None:
        """Sends what was submitted, and takes no more. Does not wait."""
        with self._lock:
            if not self._stopped:
                self._stopped = True
                self._to_send.put(None)

    def stop(self) -> None:
        """The same, and waits until all of it has ended."""
        self._connection.check_process()
        self.end()
        self._sender.join()
        self._collector.join()

    def _cancel(self, operation: str) -> None:
        request = operation_service_pb2.CancelOperationRequest(name=operation)
        self._connection.call(self._connection.operations.CancelOperation, request, self._token)

    def _id_of(self, verb: Verb) -> run_service_pb2.VerbId:
        return run_service_pb2.VerbId(run=self._run, epoch=verb.epoch, seq=verb.seq)

    def _send_all(self) -> None:
        while (verb := self._to_send.get()) is not None:
            try:
                self._send(verb)
            except BaseException as error:  # whatever it is, the waiter must get it
                verb.future.set_exception(error)
            else:
                self._to_collect.put(verb)
        self._to_collect.put(None)

    def _send(self, verb: Verb) -> None:
        self._missing = [other for other in self._missing if other.epoch == verb.epoch]
        try:
            self._skip_missing()
            request = uploads.shrink(self._connection, verb.make(), self._run, self._token)
        except BaseException:
            self._missing.append(verb)
            self._try_to_skip()
            raise
        request.id.CopyFrom(self._id_of(verb))
        try:
            operation = self._connection.call(verb.method, request, self._token).operation
        except errors.MeshloomError as error:
            if not error.reason:  # no handler has seen it
                self._missing.append(verb)
                self._try_to_skip()
            raise
        verb.future.operation = operation.name

    def _try_to_skip(self) -> None:
        try:
            self._skip_missing(retry_seconds=0.0)
        except errors.MeshloomError:
            pass  # tried again before the next verb

    def _skip_missing(self, retry_seconds: float | None = None) -> None:
        while self._missing:
            verb = self._missing[0]
            request = run_service_pb2.SkipRequest(id=self._id_of(verb), verb=verb.name)
            try:
                self._connection.call(self._connection.runs.Skip, request, self._token, retry_seconds=retry_seconds)
            except errors.MeshloomError as error:
                if error.reason not in ("SEQUENCE_REUSED", "SEQUENCE_USED"):  # those say that it is not missing
                    raise
            self._missing.pop(0)

    def _collect_all(self) -> None:
        while (verb := self._to_collect.get()) is not None:
            verb.future.finish(lambda verb=verb: self._collect(verb))  # type: ignore[misc]

    def _collect(self, verb: Verb) -> Any:
        operation = self._connection.wait(verb.future.operation, self._token)
        return verb.read(self._connection.result(operation, self._token))
