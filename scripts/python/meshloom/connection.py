# SPDX-License-Identifier: Apache-2.0
"""Connection: one channel to a daemon, its calls with deadlines and retries."""

from __future__ import annotations

import copy
import os
import random
import threading
import time
from typing import Any, Callable, Iterator

import grpc

from meshloom import errors
from meshloom.credentials import Credentials
from meshloom.protocol import Stub
from meshloom.v1 import operation_service_pb2, run_pb2

CALL_SECONDS = 30.0
TOKEN_KEY = "meshloom-run-token"
ENDED = (run_pb2.OPERATION_STATE_SUCCEEDED, run_pb2.OPERATION_STATE_FAILED, run_pb2.OPERATION_STATE_CANCELLED)
_OPTIONS = [
    ("grpc.max_receive_message_length", 32 << 20),
    ("grpc.max_send_message_length", -1),  # the daemon says what is too large
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
]

# os.fork() of a process with a channel never returns with the grpcio 1.51 of Debian 13: it waits until the threads of an
# event engine are idle, one of which polls without end (github.com/grpc/grpc/issues/31885). Channels use another poller.
# gRPC reads the variable when the first channel is made.
if grpc.__version__.startswith("1.51."):
    os.environ.setdefault("GRPC_EXPERIMENTS", "-posix_event_engine_enable_polling")


class Connection:
    """May be used by several threads. `retry_seconds`: how long calls are tried again while the daemon is not there."""

    def __init__(self, address: str, client: str, retry_seconds: float,
                 shown: Credentials = Credentials()) -> None:
        self.address = address
        self.retry_seconds = retry_seconds
        self._shown = shown
        self._metadata: tuple[tuple[str, str], ...] = (("meshloom-client", client),) + shown.metadata
        self._channel = shown.channel(address, _OPTIONS)
        self._closed = threading.Event()  # of the channel, whoever shares it
        self._process = os.getpid()
        self.tokens: Any = Stub(self._channel, "TokenService")
        self.runs: Any = Stub(self._channel, "RunService")
        self.operations: Any = Stub(self._channel, "OperationService")
        self.jobs: Any = Stub(self._channel, "JobService")
        self.data: Any = Stub(self._channel, "DataService")
        self.generation: Any = Stub(self._channel, "GenerateService")
        self.evaluation: Any = Stub(self._channel, "EvaluateService")
        self.uploads: Any = Stub(self._channel, "UploadService")
        self.checkpoints: Any = Stub(self._channel, "CheckpointService")
        self.models: Any = Stub(self._channel, "ModelService")
        self.plans: Any = Stub(self._channel, "PlanService")
        self.workers: Any = Stub(self._channel, "WorkerService")

    def check_process(self) -> None:
        """Threads and sockets stay with the process that made them: in a fork of it a call would wait for ever."""
        if os.getpid() != self._process:
            raise errors.FailedPrecondition(
                "this client was made by the process that forked this one, and is of no use here: make a Client of "
                "your own, and open_training_run(run.name, run.token) for a run", reason="CLIENT_OF_ANOTHER_PROCESS")

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    def close(self) -> None:
        self._closed.set()
        self._channel.close()

    def without_name(self) -> Connection:
        """The same channel for calls that the daemon knows by the address of this host, whatever process makes them."""
        other = copy.copy(self)
        other._metadata = self._shown.metadata
        return other

    def call(self, method: Callable[..., Any], request: Any, token: str = "", seconds: float = CALL_SECONDS,
             retry_seconds: float | None = None, repeatable: bool = True) -> Any:
        """A unary call. It is tried again where the daemon had no thread for it, and after UNAVAILABLE, so a request
        must be harmless when it is repeated. One that is not `repeatable` is tried again only where the daemon has
        refused it for sure."""
        self.check_process()
        end = time.monotonic() + (self.retry_seconds if retry_seconds is None else retry_seconds)
        metadata = self._metadata + (((TOKEN_KEY, token),) if token else ())
        pause = 0.05
        while True:
            try:
                return method(request, timeout=seconds, metadata=metadata)
            except grpc.RpcError as error:
                failure = errors.from_rpc(error)
                unavailable = error.code() == grpc.StatusCode.UNAVAILABLE and (repeatable or failure.reason)
                again = unavailable or errors.found_no_thread(error)
                if not again or time.monotonic() + pause > end:
                    raise failure from None
            except ValueError as error:  # grpc's word for a channel that was closed
                raise errors.Unavailable(f"the client was closed ({error})", grpc.StatusCode.UNAVAILABLE) from None
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, 2.0)

    def send_stream(self, method: Callable[..., Any], requests: Iterator[Any], token: str = "") -> Any:
        """A stream of requests with one answer; nothing is tried again."""
        metadata = self._metadata + (((TOKEN_KEY, token),) if token else ())
        try:
            return method(requests, metadata=metadata)
        except grpc.RpcError as error:
            raise errors.from_rpc(error) from None

    def pages(self, method: Callable[..., Any], request: Any) -> Iterator[Any]:
        """The answers of a list, page by page."""
        while True:
            page = self.call(method, request)
            yield page
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def wait(self, name: str, token: str) -> run_pb2.Operation:
        """The operation once it has ended. Throws only where the daemon does not tell what became of it."""
        while (operation := self.look(name, token, 20_000)).state not in ENDED:
            pass
        return operation

    def look(self, name: str, token: str, timeout_ms: int) -> run_pb2.Operation:
        """The operation once it has ended, or as it is after `timeout_ms`, at least 1."""
        request = operation_service_pb2.WaitOperationRequest(name=name, timeout_ms=timeout_ms)
        return self.call(self.operations.WaitOperation, request, token).operation

    def result(self, operation: run_pb2.Operation, token: str) -> run_pb2.VerbResult:
        """What an operation that has ended returned; large results are read as a stream. Throws its error."""
        if operation.state != run_pb2.OPERATION_STATE_SUCCEEDED:
            raise errors.from_details(operation.error)
        if operation.HasField("result") or operation.result_bytes == 0:
            return operation.result
        data = bytearray()
        make = lambda: operation_service_pb2.ReadResultRequest(name=operation.name, offset=len(data))
        for piece in self.stream(self.operations.ReadResult, make, token):
            data += piece.data
        return run_pb2.VerbResult.FromString(bytes(data))

    def stream(self, method: Callable[..., Any], make: Callable[[], Any], token: str = "",
               repeatable: bool = True, end: float | None = None) -> Iterator[Any]:
        """The messages of a stream. Where the connection breaks, it goes on with the request that `make` then gives,
        which names what has come already; given up once it has been broken for retry_seconds. One that is not
        `repeatable` is begun again only as long as nothing has come. Whoever leaves it early cancels the call.
        At `end`, of time.monotonic(), it raises DeadlineExceeded."""
        self.check_process()
        metadata = self._metadata + (((TOKEN_KEY, token),) if token else ())
        failed: float | None = None  # since the last message
        begun = False
        while True:
            call: Any = None
            try:
                left = None if end is None else max(end - time.monotonic(), 0.0)
                call = method(make(), metadata=metadata, timeout=left)
                for message in call:
                    failed, begun = None, True
                    yield message
                return
            except grpc.RpcError as error:
                failed = failed or time.monotonic()
                again = error.code() == grpc.StatusCode.UNAVAILABLE and (repeatable or not begun)
                if not again or time.monotonic() - failed >= self.retry_seconds:
                    raise errors.from_rpc(error) from None
            except ValueError as error:  # grpc's word for a channel that was closed
                raise errors.Unavailable(f"the client was closed ({error})", grpc.StatusCode.UNAVAILABLE) from None
            finally:
                if call is not None:
                    call.cancel()
            time.sleep(0.1)
