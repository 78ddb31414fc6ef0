# SPDX-License-Identifier: Apache-2.0
"""Client: a daemon, the runs on it, and the models and plans that it holds."""

from __future__ import annotations

import os
import re
import socket
import uuid
from types import TracebackType
from typing import Any, Iterator, Mapping

from meshloom import plans
from meshloom.connection import Connection
from meshloom.future import Future
from meshloom.messages import fill
from meshloom.models import Model, Models, Progress
from meshloom.plans import Plan
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
        # Uploads belong to whoever sends them: without a name given, the next process here goes on with them.
        self._models = Models(self._connection if name else self._connection.without_name())

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def create_training_run(self, config: Mapping[str, Any], *, name: str = "", dropout: bool = False,
                            lease_seconds: int | None = None, gap_timeout_seconds: int | None = None,
                            state: str = "", with_optimizer: bool = True,
                            overcommit: bool = False) -> TrainingRun:
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
        run = self._connection.call(self._connection.runs.GetRun, request, token).run
        return TrainingRun(self._connection, run, token)

    def delete_run(self, name: str) -> None:
        """Removes a run that has ended for good, "runs/NAME", with its saved states and weights. It needs no token: a
        client of the same `name` as the one that made it may do so. FailedPrecondition otherwise (RUN_OF_ANOTHER), and
        for a run that has not ended (RUN_NOT_ENDED)."""
        request = run_service_pb2.DeleteRunRequest(name=name)
        self._connection.call(self._connection.runs.DeleteRun, request, repeatable=False)

    def runs(self) -> Iterator[run_pb2.Run]:
        """All runs that the daemon knows, oldest first."""
        for page in self._connection.pages(self._connection.runs.ListRuns, run_service_pb2.ListRunsRequest()):
            yield from page.runs

    def create_model(self, name: str, folder: str | os.PathLike[str], *,
                     progress: Progress | None = None) -> Future[Model]:
        """Sends a Hugging Face folder of this machine and makes a model of it, named [a-z0-9][a-z0-9_-]{0,62}, which
        stays until it is deleted. Runs and jobs take it as {"model": {"name": name}}.

        Goes on after a break of the connection or a restart of the daemon, and where another process of this host, or
        of the same `name` of Client, has stopped; what the daemon has is not sent again. Headers are checked before
        weights are sent. `progress(file, sent, size)` is called on other threads, for every file at least once.
        """
        return self._models.create(name, folder, progress)

    def get_model(self, name: str) -> Model:
        return self._models.get(name)

    def list_models(self) -> list[Model]:
        """All models, oldest first."""
        return self._models.all()

    def delete_model(self, name: str) -> None:
        """FailedPrecondition (MODEL_IN_USE) while a run, or a job that has not ended, uses it."""
        self._models.delete(name)

    def create_plan(self, model: Mapping[str, Any], mesh: Mapping[str, int],
                    plan: Mapping[str, Any] | None = None) -> Plan:
        """Checks a mesh and a plan, spelled as in `config` of create_training_run, against a model and the ranks there
        are, and keeps them. The same again are the same plan."""
        return plans.create(self._connection, model, mesh, plan or {})

    def get_plan(self, name: str) -> Plan:
        """`name`: at least the first 8 digits."""
        return plans.get(self._connection, name)

    def list_plans(self) -> list[Plan]:
        """All plans, oldest first."""
        return plans.list_all(self._connection)

    def delete_plan(self, name: str) -> None:
        """FailedPrecondition (PLAN_IN_USE) while a run, or a job that has not ended, names it."""
        plans.delete(self._connection, name)
