# SPDX-License-Identifier: Apache-2.0
"""SampleStream: the samples of one run, sent in the order of the calls and waited for together by two threads."""

from __future__ import annotations

import queue
import threading
from typing import Any, Callable

from meshloom import data as shapes, errors
from meshloom.connection import ENDED, Connection
from meshloom.sample import SampleFuture
from meshloom.v1 import operation_service_pb2, run_service_pb2

_PAGE = 500  # the most that the daemon lists at once


class SampleStream:
    """`submit` may be called by several threads and never waits for the daemon, which has every sample as soon as it
    takes it. `epoch` is asked when one is sent, `wait_ready` called where the run does not have the ranks."""

    def __init__(self, connection: Connection, run: str, token: str, epoch: Callable[[], int],
                 wait_ready: Callable[[], Any]) -> None:
        self._connection = connection
        self._run = run
        self._token = token
        self._epoch = epoch
        self._wait_ready = wait_ready
        self._to_send: queue.SimpleQueue[tuple[SampleFuture, run_service_pb2.SampleRequest] | None]
        self._to_send = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._under_way: dict[str, SampleFuture] = {}  # by operation, oldest first
        self._ended = 0
        self._all_sent = False
        self._stopped = False
        self._threads: list[threading.Thread] = []  # from the first sample on

    def submit(self, future: SampleFuture, request: run_service_pb2.SampleRequest) -> None:
        self._connection.check_process()
        with self._changed:
            if self._stopped:
                raise errors.RunClosed(f"{self._run} was closed by this client", reason="RUN_CLOSED")
            if not self._threads:
                self._threads = [threading.Thread(target=self._send_all, name=f"{self._run} samples", daemon=True),
                                 threading.Thread(target=self._collect_all, name=f"{self._run} sampled", daemon=True)]
                for thread in self._threads:
                    thread.start()
            self._to_send.put((future, request))

    def end(self) -> None:
        """Sends what was submitted, and takes no more. Does not wait."""
        with self._changed:
            if not self._stopped:
                self._stopped = True
                self._to_send.put(None)

    def stop(self) -> None:
        """The same, and waits until all of it has ended."""
        self._connection.check_process()
        self.end()
        for thread in self._threads:
            thread.join()

    def _send_all(self) -> None:
        while (item := self._to_send.get()) is not None:
            self._send(*item)
        with self._changed:
            self._all_sent = True
            self._changed.notify_all()

    def _send(self, future: SampleFuture, request: run_service_pb2.SampleRequest) -> None:
        while future.claim():
            try:
                request.epoch = self._epoch()
                name = self._connection.call(self._connection.runs.Sample, request, self._token,
                                             repeatable=False).operation.name
            except BaseException as error:  # whatever it is, the waiter must get it
                wait = self._what_may_help(error)
                if wait is None:
                    return future.set_exception(error)
            else:
                future.begun(name)
                with self._changed:
                    self._under_way[name] = future
                    self._changed.notify_all()
                return
            future.release()  # it can be cancelled meanwhile
            try:
                wait()
            except BaseException as error:
                if future.claim():
                    future.set_exception(error)
                return

    def _what_may_help(self, error: BaseException) -> Callable[[], Any] | None:
        if not isinstance(error, errors.MeshloomError):
            return None
        if error.reason == "RUN_NOT_READY":
            return self._wait_ready
        with self._changed:
            full = isinstance(error, errors.ResourceExhausted) and error.reason and self._under_way
            return self._wait_for_room(self._ended) if full else None

    def _wait_for_room(self, ended: int) -> Callable[[], None]:
        """What those that are under way take is given back as they end."""
        def wait() -> None:
            with self._changed:
                self._changed.wait_for(lambda: self._ended > ended or not self._under_way)

        return wait

    def _collect_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._under_way or self._all_sent)
                names = list(self._under_way)
            if not names:
                return
            try:
                self._collect_some(names)
            except BaseException as error:  # the daemon tells of none of them
                for name in names:
                    if name in self._under_way:
                        self._end(name).fail(error)

    def _collect_some(self, names: list[str]) -> None:
        """Waits for the oldest; where that takes long, looks for others that have ended."""
        if self._collect(names[0], 100 + len(names) // 10) or len(names) == 1:
            return
        request = operation_service_pb2.ListOperationsRequest(run=self._run, page_size=_PAGE)
        pages = self._connection.pages(self._connection.operations.ListOperations, request)
        under_way = {item.name for page in pages for item in page.operations if item.state not in ENDED}
        for name in names:
            if name not in under_way:
                self._collect(name, 1)

    def _collect(self, name: str, timeout_ms: int) -> bool:
        """True if it has ended."""
        try:
            operation = self._connection.look(name, self._token, timeout_ms)
        except (errors.Unavailable, errors.DeadlineExceeded):
            raise
        except errors.MeshloomError as error:
            self._end(name).fail(error)
            return True
        if operation.state not in ENDED:
            return False
        future = self._end(name)
        try:
            result = shapes.sampled_sequences(self._connection.result(operation, self._token))
        except BaseException as error:
            future.fail(error)
        else:
            future.set_result(result)
        return True

    def _end(self, name: str) -> SampleFuture:
        with self._changed:
            self._ended += 1
            self._changed.notify_all()
            return self._under_way.pop(name)
