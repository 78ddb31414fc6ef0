# SPDX-License-Identifier: Apache-2.0
"""Client: a daemon and the runs on it."""

from __future__ import annotations

import os
import re
import socket
import uuid
from types import TracebackType
from typing import Any, Iterator, Mapping

from meshloom.connection import Connection
from meshloom.messages import fill
from meshloom.run import TrainingRun
from meshloom.v1 import run_pb2, run_service_pb2

DEFAULT_ADDRESS = "127.0.0.1:7420"


class Client:
    """A connection to a meshloomd at "host:port" (default: MESHLOOM_ADDRESS, else 127.0.0.1:7420), which may be used
    by several threads. `name` is what the daemon knows this client by; `retry_seconds` how long calls are tried again
    while the daemon is not there. `with` closes it, which leaves runs as they are.
    """

    def __init__(self, address: str | None = None, *, name: str | None = None, retry_seconds: float = 30.0) -> None:
        default = re.sub(r"[^!-~]", "_", f"python-{socket.gethostname()}")[:50] + f"-{os.getpid()}"
        if address is None:
            address = os.environ.get("MESHLOOM_ADDRESS", DEFAULT_ADDRESS)
        self._connection = Connection(address, name or default, retry_seconds)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def create_training_run(self, config: Mapping[str, Any], *, name: str = "", dropout: bool = False,
                            lease_seconds: int = 0, gap_timeout_seconds: int = 0, state: str = "",
                            with_optimizer: bool = True, overcommit: bool = False) -> TrainingRun:
        """Makes a run; it waits for the ranks behind other runs and jobs, verbs are taken at once.

        `config` is spelled as the `run:` of a job file (RunConfig in proto/v1/config.proto): model, mesh, plan,
        optimizer, and of training seed, seq_len (the longest datum) and micro_batch_size. For example
        {"model": {"preset": "byte_gpt_tiny"}, "mesh": {"tp": 2}, "optimizer": {"type": "sgd", "lr": 0.1}}.
        `state`: begins with what save_state wrote, on any mesh. The other fields are those of RunSpec in run.proto.
        """
        spec = run_pb2.RunSpec(name=name, dropout=dropout, lease_seconds=lease_seconds,
                               gap_timeout_seconds=gap_timeout_seconds, state=state,
                               without_optimizer=not with_optimizer, overcommit=overcommit)
        spec.config.SetInParent()
        fill(spec.config, config, "config")
        request = run_service_pb2.CreateRunRequest(request_id=str(uuid.uuid4()), spec=spec)
        made = self._connection.call(self._connection.runs.CreateRun, request)
        return TrainingRun(self._connection, made.run, made.token)

    def open_training_run(self, name: str, token: str) -> TrainingRun:
        """A run that was made before, also by another process or before a restart of the daemon. Its verbs go on with
        the run's present epoch and next number: nobody else may drive it meanwhile."""
        request = run_service_pb2.GetRunRequest(name=name)
        return TrainingRun(self._connection, self._connection.call(self._connection.runs.GetRun, request).run, token)

    def runs(self) -> Iterator[run_pb2.Run]:
        """All runs that the daemon knows, oldest first."""
        request = run_service_pb2.ListRunsRequest()
        while True:
            page = self._connection.call(self._connection.runs.ListRuns, request)
            yield from page.runs
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token
