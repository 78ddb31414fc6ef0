# SPDX-License-Identifier: Apache-2.0
"""Client: a daemon, its jobs and runs, and the models, plans and data that it holds."""

from __future__ import annotations

import os
import re
import socket
import uuid
from types import TracebackType
from typing import Any, Iterator, Literal, Mapping, Sequence, overload

from meshloom import credentials, data_files, evaluation, generation, job_file, plans
from meshloom.comparison import Comparison
from meshloom.connection import Connection
from meshloom.data_files import ImportedFile
from meshloom.errors import InvalidArgument
from meshloom.evaluation import Evaluation, EvaluationProgress
from meshloom.future import Future
from meshloom.generation import Generation, Piece
from meshloom.hints import hinted
from meshloom.job_file import JobSource
from meshloom.jobs import Job
from meshloom.lease import LEASE_SECONDS
from meshloom.messages import fill, refuse
from meshloom.metrics_line import MetricsLine, read_line
from meshloom.models import Model, Models, Progress
from meshloom.plans import Plan
from meshloom.prompts import Message, Prompt
from meshloom.run import TrainingRun
from meshloom.tokenizer import Tokenizer
from meshloom.v1 import (token_service_pb2, config_pb2, job_service_pb2, run_pb2, run_service_pb2,
                         worker_service_pb2)

DEFAULT_ADDRESS = "127.0.0.1:7420"
_DEFAULT_PORT = 7420


def _address(given: str) -> str:
    """"host:port" of what people write, as the program `meshloom` has it: with a scheme before it, a path behind it,
    without a port, or a port of this host alone."""
    address = re.sub(r"^(http|grpc)://", "", given.strip())
    if address.startswith("https://"):
        raise refuse("address", f"{given!r}: meshloomd speaks no https; write host:port, and give ca")
    if re.match(r"(unix|dns|ipv4|ipv6):", address):  # of gRPC
        return address
    address = address.split("/", 1)[0]
    if not address:
        raise refuse("address", f"{given!r} names no host; expected \"host:port\", such as {DEFAULT_ADDRESS}")
    if re.fullmatch(r"[0-9]+", address):
        return f"127.0.0.1:{address}"
    in_brackets = address.startswith("[")
    if address.count(":") > 1 and not in_brackets:
        return f"[{address}]:{_DEFAULT_PORT}"  # IPv6
    has_port = "]:" in address if in_brackets else ":" in address
    return address if has_port else f"{address}:{_DEFAULT_PORT}"


@hinted
class Client:
    """A connection to a meshloomd at "host:port" (default: MESHLOOM_ADDRESS, else 127.0.0.1:7420), which may be used
    by several threads. `name` is what the daemon knows this client by; `retry_seconds` how long calls are tried again
    while the daemon is not there. `with` closes it, which leaves jobs and runs as they are.

    Files of a daemon that others reach: `token_file` or `cert` and `key` say who this client is, and with `ca`, the CA of
    the daemon's certificate, calls are encrypted. Default: MESHLOOM_TOKEN_FILE, MESHLOOM_CA, MESHLOOM_CERT, MESHLOOM_KEY,
    else token, ca.pem, cert.pem and key.pem in ~/.config/meshloom/HOST:PORT.
    """

    def __init__(self, address: str | None = None, *, name: str | None = None, retry_seconds: float = 30.0,
                 token_file: str | None = None, ca: str | None = None, cert: str | None = None,
                 key: str | None = None) -> None:
        default = re.sub(r"[^!-~]", "_", f"python-{socket.gethostname()}")[:50] + f"-{os.getpid()}"
        if address is None:
            address = os.environ.get("MESHLOOM_ADDRESS", DEFAULT_ADDRESS)
        complete = _address(address)
        shown = credentials.read(credentials.find(credentials.Files(token_file, ca, cert, key), complete), complete)
        self._connection = Connection(complete, name or default, retry_seconds, shown)
        # Uploads belong to whoever sends them: without a name given, the next process here goes on with them.
        self._owner = self._connection if name else self._connection.without_name()
        self._models = Models(self._owner)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client of meshloomd at {self._connection.address}>"

    @property
    def address(self) -> str:
        return self._connection.address

    def close(self) -> None:
        self._connection.close()

    def who_am_i(self) -> token_service_pb2.WhoAmIResponse:
        """Who this client is to the daemon, and its role: nobody, viewer, submitter or admin."""
        answer: token_service_pb2.WhoAmIResponse = self._connection.call(
            self._connection.tokens.WhoAmI, token_service_pb2.WhoAmIRequest())
        return answer

    def workers(self) -> worker_service_pb2.ListWorkersResponse:
        """The daemon's ranks, its version, and who has the ranks."""
        answer: worker_service_pb2.ListWorkersResponse = self._connection.call(
            self._connection.workers.ListWorkers, worker_service_pb2.ListWorkersRequest())
        return answer

    @property
    def ranks(self) -> int:
        """How many the daemon has: what the sizes of a mesh multiply to."""
        return len(self.workers().workers)

    @property
    def version(self) -> str:
        """The daemon's; meshloom.__version__ is the package's, which is made together with it."""
        return self.workers().version

    # --- Jobs.

    def submit(self, job: JobSource, *, changes: Mapping[str, Any] | None = None, name: str | None = None,
               labels: Mapping[str, str] | None = None) -> Job:
        """Queues a whole training. `job` is a mapping spelled as a job file, the text of one in several lines, or its
        path. `changes` sets fields of it by their paths ({"run.training.steps": 100}, of which "run." may be left out).
        Mistakes are told with the lines of the file. `Job.warnings`: what may be a mistake."""
        made, warnings = self._submit(job, changes, name, labels, dry_run=False)
        return Job(self._connection, made.job, warnings)

    def check(self, job: JobSource, *, changes: Mapping[str, Any] | None = None,
              name: str | None = None) -> job_service_pb2.SubmitJobResponse:
        """What submit would do, without doing it: the job with all defaults, estimates of memory, time and disk, and
        warnings."""
        return self._submit(job, changes, name, None, dry_run=True)[0]

    def _submit(self, job: JobSource, changes: Mapping[str, Any] | None, name: str | None,
                labels: Mapping[str, str] | None,
                dry_run: bool) -> tuple[job_service_pb2.SubmitJobResponse, Sequence[str]]:
        file = job_file.read_job(self._connection, job)
        job_file.change(self._connection, file.spec, changes or {})
        if name is not None:
            file.spec.name = name
        file.spec.labels.update(labels or {})
        request = job_service_pb2.SubmitJobRequest(request_id=str(uuid.uuid4()), spec=file.spec, validate_only=dry_run)
        try:
            made = self._connection.call(self._connection.jobs.SubmitJob, request)
        except InvalidArgument as error:
            raise file.placed(error) from None
        return made, tuple(made.warnings)

    def job(self, name: str) -> Job:
        """A job that was submitted before, by whomever."""
        request = job_service_pb2.GetJobRequest(name=name)
        return Job(self._connection, self._connection.call(self._connection.jobs.GetJob, request).job)

    def jobs(self, *, labels: Mapping[str, str] | None = None) -> list[Job]:
        """All jobs, or those with all of these labels, oldest first."""
        request = job_service_pb2.ListJobsRequest(labels=dict(labels or {}))
        pages = self._connection.pages(self._connection.jobs.ListJobs, request)
        return [Job(self._connection, item) for page in pages for item in page.jobs]

    def compare(self, *jobs: Job | str, steps: int = 12) -> Comparison:
        """Jobs side by side; see Job.compare."""
        made = [self.job(item) if isinstance(item, str) else item for item in jobs]
        if len(made) < 2:
            raise refuse("jobs", f"are {len(made)}, expected two or more to compare")
        return made[0].compare(*made[1:], steps=steps)

    def follow_metrics(self, job: Job | str, *, after: int = 0) -> Iterator[MetricsLine]:
        """What is measured of a job, step by step and validation by validation, from its first step until it has ended,
        also over restarts of the daemon. `after`: the revision of a line, behind which it goes on. A line is told once,
        but for steps that an edit has made other than they were told, which are told again."""
        name = job.name if isinstance(job, Job) else job
        request = job_service_pb2.StreamMetricsRequest(name=name, after_revision=after, follow=True)
        for message in self._connection.stream(self._connection.jobs.StreamMetrics, lambda: request):
            request.after_revision = message.revision
            line = read_line(message.line, message.revision)
            if line is not None:
                yield line

    # --- Weights: evaluated, and drawn from.

    def evaluate(self, source: Any, data: str | Mapping[str, Any] | None = None, *, seq_len: int | None = None,
                 global_batch_size: int | None = None, mesh: Mapping[str, int] | None = None,
                 plan: Mapping[str, Any] | None = None, device: str | None = None, batches: int | None = None,
                 no_wait: bool | None = None, progress: EvaluationProgress | None = None) -> Evaluation:
        """The loss of a model on data, computed by the ranks; waits for them. `source` is a Job, a Model, a Checkpoint,
        the name of one ("jobs/NAME", "models/NAME", "checkpoints/JOB/step-N"), or a Hugging Face folder below the
        daemon's data dir; `data` a path there, or as the section `data` of a job file. `device`: auto, cpu, cuda or
        cuda:N, by default the job's where all ranks have it, else auto."""
        fields = {"seq_len": seq_len, "global_batch_size": global_batch_size, "mesh": mesh, "plan": plan,
                  "device": device, "batches": batches, "no_wait": no_wait}
        return evaluation.evaluate(self._connection, source, data, fields, progress)

    @overload
    def generate(self, source: Any, prompt: Prompt | Sequence[Prompt] | None = ..., *,
                 messages: Sequence[Message] | None = ..., samples: int = ..., max_tokens: int | None = ...,
                 temperature: float | None = ..., top_k: int | None = ..., top_p: float | None = ...,
                 seed: int | None = ..., stop_tokens: Sequence[int] = ..., stop_strings: Sequence[str | bytes] = ...,
                 ignore_eos: bool = ..., past_context: bool | None = ...,
                 stream: Literal[False] = ...) -> Generation: ...

    @overload
    def generate(self, source: Any, prompt: Prompt | Sequence[Prompt] | None = ..., *,
                 messages: Sequence[Message] | None = ..., samples: int = ..., max_tokens: int | None = ...,
                 temperature: float | None = ..., top_k: int | None = ..., top_p: float | None = ...,
                 seed: int | None = ..., stop_tokens: Sequence[int] = ..., stop_strings: Sequence[str | bytes] = ...,
                 ignore_eos: bool = ..., past_context: bool | None = ...,
                 stream: Literal[True]) -> Iterator[Piece]: ...

    def generate(self, source: Any, prompt: Prompt | Sequence[Prompt] | None = None, *,
                 messages: Sequence[Message] | None = None, samples: int = 1, max_tokens: int | None = None,
                 temperature: float | None = None, top_k: int | None = None, top_p: float | None = None,
                 seed: int | None = None, stop_tokens: Sequence[int] = (), stop_strings: Sequence[str | bytes] = (),
                 ignore_eos: bool = False, past_context: bool | None = None,
                 stream: bool = False) -> Generation | Iterator[Piece]:
        """Continues each prompt `samples` times. `source` is as evaluate has it; a job is sampled as it is while it
        trains. A prompt is text, token ids or a conversation, which `messages` is as well: [{"role": "user", "content":
        "..."}], rendered by the model's chat template. Without a prompt it begins as the model's texts do.

        What is left out is as the model's generation_config.json has it, but for the `seed`, which is another one each
        time; every sequence tells its own. With `stream` the pieces are told as they are drawn, those of several
        sequences in turn: `for piece in client.generate(job, "Once", stream=True): print(piece, end="", flush=True)`.
        """
        arguments: dict[str, Any] = {
            "messages": messages, "samples": samples, "max_tokens": max_tokens, "temperature": temperature,
            "top_k": top_k, "top_p": top_p, "seed": seed, "stop_tokens": stop_tokens, "stop_strings": stop_strings,
            "ignore_eos": ignore_eos, "past_context": past_context}
        return generation.generate(self._connection, source, prompt, stream=stream, **arguments)

    def tokenizer(self, model: str | Model, tokenizer: str = "") -> Tokenizer:
        """Of a model of the daemon ("models/NAME"), a preset of bytes, or a Hugging Face folder below its data dir.
        `tokenizer`: another folder's instead."""
        name = model.name if isinstance(model, Model) else model
        source = config_pb2.ModelSource()
        if name.startswith("models/"):
            source.name = name
        elif name in self.presets():
            source.preset = name
        else:
            source.hf_folder = name
        return Tokenizer(self._connection, source, tokenizer)

    def presets(self) -> list[str]:
        """The names that {"model": {"preset": name}} takes."""
        request = worker_service_pb2.GetCapabilitiesRequest()
        return list(self._connection.call(self._connection.workers.GetCapabilities, request).presets)

    # --- Runs.

    def create_training_run(self, config: Mapping[str, Any], *, name: str = "", dropout: bool = False,
                            lease_seconds: int = LEASE_SECONDS, gap_timeout_seconds: int | None = None,
                            state: str = "", with_optimizer: bool = True,
                            overcommit: bool = False) -> TrainingRun:
        """Makes a run; it waits for the ranks behind other runs and jobs, verbs are taken at once. Whom it waits behind
        is logged as a warning after three seconds.

        `config` is spelled as the `run:` of a job file (RunConfig in proto/v1/config.proto): model, mesh, plan,
        optimizer, and of training seed, seq_len (the longest datum) and micro_batch_size. For example
        {"model": {"preset": "byte_gpt_tiny"}, "mesh": {"tp": 2}, "optimizer": {"type": "sgd", "lr": 0.1}}.
        `state`: begins with what save_state wrote, on any mesh. `lease_seconds`: how long the run stays once this
        process, or the TrainingRun, is gone. The other fields are those of RunSpec in run.proto.
        """
        spec = run_pb2.RunSpec(name=name, dropout=dropout, lease_seconds=lease_seconds,
                               gap_timeout_seconds=gap_timeout_seconds, state=state,
                               without_optimizer=not with_optimizer, overcommit=overcommit)
        spec.config.CopyFrom(job_file.read_run_config(self._connection, config))
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

    # --- Models, plans and data.

    def import_upload(self, file: str | os.PathLike[str], path: str, *, overwrite: bool = False,
                      progress: Progress | None = None) -> ImportedFile:
        """Sends a file of this machine and makes it a file below the daemon's data dir, whose `path` a job then names:
        {"data": {"path": "text.txt"}}. Goes on after a break; what the daemon has is not sent again."""
        return data_files.import_upload(self._owner, file, path, overwrite, progress)

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
