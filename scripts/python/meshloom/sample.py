# SPDX-License-Identifier: Apache-2.0
"""SampleFuture: a sample that is under way, and its tokens as they are drawn."""

from __future__ import annotations

import threading
from typing import Iterator

import grpc

from meshloom import data as shapes, errors
from meshloom.connection import Connection
from meshloom.data import SampledSequence, SampledTokens
from meshloom.future import Future
from meshloom.v1 import operation_service_pb2


class SampleFuture(Future[list[SampledSequence]]):
    def __init__(self, connection: Connection, token: str) -> None:
        super().__init__("sample")
        self._connection = connection
        self._token = token
        self._lock = threading.Lock()
        self._claimed = False
        self._cancel_asked = False  # of the daemon
        self._named = threading.Event()
        self.add_done_callback(lambda _: self._named.set())

    def claim(self) -> bool:
        """True for whoever comes first, to send it or to cancel what was not sent."""
        with self._lock:
            first, self._claimed = not self._claimed, True
        return first

    def release(self) -> None:
        """Whoever was to send it could not yet."""
        with self._lock:
            self._claimed = False

    def begun(self, operation: str) -> None:
        self.operation = operation
        self._named.set()

    def cancel(self) -> bool:
        """True if it draws no more: one that waits to be sent ends here, any other at the daemon."""
        if self.claim():
            self.set_exception(errors.Cancelled("the sample was cancelled before it was sent",
                                                grpc.StatusCode.CANCELLED, "CANCELLED_BY_CLIENT"))
            return True
        self._named.wait()
        self._cancel_asked = True
        return super().cancel()

    def fail(self, error: BaseException) -> None:
        """Ends it. The daemon keeps only some of what was cancelled."""
        if self._cancel_asked and isinstance(error, errors.NotFound):
            error = errors.Cancelled("its client has cancelled it", grpc.StatusCode.CANCELLED, "CANCELLED_BY_CLIENT")
        self.set_exception(error)

    def watch(self) -> Iterator[SampledTokens]:
        """Its tokens, from the first, as they are drawn; ends with the sample and raises its error. May be called at
        any time and several times."""
        self._named.wait()
        if not self.operation:
            self.result()  # raises why it was not taken
        known: list[int] = []
        make = lambda: operation_service_pb2.WatchOperationRequest(name=self.operation, known_tokens=known)
        for message in self._connection.stream(self._connection.operations.WatchOperation, make, self._token):
            if message.HasField("tokens"):
                tokens = shapes.sampled_tokens(message.tokens)
                known.extend([0] * (tokens.sequence + 1 - len(known)))
                known[tokens.sequence] = tokens.first + len(tokens.tokens)
                yield tokens
        self.result()
