# SPDX-License-Identifier: Apache-2.0
"""Job: a whole training that the daemon drives."""

from __future__ import annotations

import contextlib
import time
import uuid
from typing import Any, Callable, Iterator, Literal, Mapping, Sequence, overload

from meshloom import checkpoints, errors, evaluation, generation, job_file
from meshloom.chart import Chart
from meshloom.checkpoints import Checkpoint, ExportProgress
from meshloom.comparison import Comparison, compare, plot_metrics
from meshloom.connection import Connection
from meshloom.evaluation import Evaluation, EvaluationProgress
from meshloom.generation import Generation, Piece
from meshloom.hints import did_you_mean, hinted
from meshloom.job_events import JobEvent, events, state_name
from meshloom.job_view import job_html, job_text
from meshloom.messages import plain, refuse
from meshloom.metrics import Metrics, read_metrics
from meshloom.progress import Display, WaitTeller
from meshloom.prompts import Message, Prompt
from meshloom.tokenizer import Tokenizer
from meshloom.v1 import job_pb2, job_service_pb2

ENDED = ("succeeded", "failed", "cancelled")

# What edit() takes by a short name.
_EDITABLE = {
    "steps": "run.training.steps",
    "lr": "run.optimizer.lr",
    "validation_interval": "run.validation.interval",
    "validation_steps": "run.validation.steps",
    "checkpoint_interval": "run.checkpoint.interval",
    "keep_latest_k": "run.checkpoint.keep_latest_k",
    "keep_best": "run.checkpoint.keep_best",
    "sample_interval": "run.sample.interval",
    "step_limit": "step_limit",
    "time_limit_seconds": "time_limit_seconds",
}


@hinted
class Job:
    """Made by Client.submit, Client.job and Client.jobs. `name` is "jobs/NAME". What it tells of itself (`state`,
    `step`, `loss`, ...) is asked of the daemon each time, until the job has ended; repr() shows what was seen last."""

    def __init__(self, connection: Connection, message: job_pb2.Job, warnings: Sequence[str] = ()) -> None:
        self.name: str = message.name
        self.warnings = tuple(warnings)  #: of the submission: what may be a mistake
        self._connection = connection
        self._last = message

    # --- What it is.

    def info(self) -> job_pb2.Job:
        """The job as the daemon sees it."""
        if state_name(self._last.state) not in ENDED or not self._last.HasField("resolved"):
            self._seen(self._connection.call(self._connection.jobs.GetJob,
                                             job_service_pb2.GetJobRequest(name=self.name)).job)
        return self._last

    @property
    def state(self) -> str:
        """queued, preparing, running, pausing, paused, recovering, held, cancelling, cancelled, succeeded, failed."""
        return state_name(self.info().state)

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def step(self) -> int:
        """Optimizer steps done."""
        return self.info().step

    @property
    def steps(self) -> int:
        """Optimizer steps of the whole job."""
        return self.info().steps

    @property
    def loss(self) -> float | None:
        """Of the last step: the mean over its labels. None before the first."""
        job = self.info()
        return job.last_step.loss if job.HasField("last_step") else None

    @property
    def validation_loss(self) -> float | None:
        """Of the last validation: the mean over its labels. None before the first."""
        job = self.info()
        return job.last_validation.loss if job.HasField("last_validation") else None

    @property
    def bits_per_byte(self) -> float | None:
        """The loss of the last step by bytes of text, which compares across tokenizers. None where it is not known."""
        step = self.info().last_step
        return step.bits_per_byte if step.HasField("bits_per_byte") else None

    @property
    def waits_for(self) -> str:
        """While it waits for the ranks: behind whom, and for how long at most. Empty where it does not."""
        return self.info().wait.reason

    @property
    def config(self) -> dict[str, Any]:
        """The `run:` of its job file with every default filled in; a job file of Python may be made of it."""
        return plain(self.info().resolved)

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(self.info().notes)

    @property
    def error(self) -> errors.MeshloomError | None:
        """Why it has failed; None where it has not."""
        job = self.info()
        return errors.from_details(job.error) if job.HasField("error") else None

    # --- What happens to it.

    def follow(self) -> Iterator[JobEvent]:
        """What happens from now on, until it has ended. Goes on after a break of the connection and a restart of the
        daemon. `metrics()` has what was before."""
        return events(self._connection, self.name, self._seen)

    def wait(self, timeout: float | None = None, *, progress: bool = True) -> Job:
        """Waits until it has ended, with a line of progress (a bar on a terminal, one line in a notebook, a line every
        ten seconds elsewhere). Raises its error where it has failed, Cancelled where it was cancelled, TimeoutError
        after `timeout`, of which the job knows nothing. Ctrl-C leaves the job alone, too."""
        end = None if timeout is None else time.monotonic() + timeout
        with Display(self.short_name, shown=progress) as display, self._tell_waits(display, progress):
            try:
                for event in events(self._connection, self.name, self._seen, end):
                    display.show(event, self._last.steps)
            except errors.DeadlineExceeded:
                job = self.info()
                raise TimeoutError(f"{self.name} is {state_name(job.state)} at step {job.step} of {job.steps} after "
                                   f"{timeout} s") from None
        if failure := self.error:
            raise failure
        if self.state == "cancelled":
            raise errors.Cancelled(f"{self.name} was cancelled at step {self.step}", reason="JOB_CANCELLED")
        return self

    def metrics(self) -> Metrics:
        """All that was measured so far, as columns."""
        return read_metrics(self._lines(self._connection.jobs.StreamMetrics, job_service_pb2.StreamMetricsRequest,
                                        follow=False))

    def logs(self, *, follow: bool = False) -> Iterator[str]:
        """The lines of its log; with `follow` until it has ended."""
        return self._lines(self._connection.jobs.StreamLogs, job_service_pb2.StreamLogsRequest, follow)

    def plot(self, name: str = "loss", *others: Job) -> Chart:
        """A column of metrics() by step, of other jobs as well: text in a terminal, SVG in a notebook; `figure()` of
        the chart is one of matplotlib."""
        return plot_metrics({job.short_name: job.metrics() for job in (self, *others)}, name)

    def compare(self, *others: Job, steps: int = 12) -> Comparison:
        """Where the configs differ, and losses at up to `steps` steps that all have done."""
        jobs = (self, *others)
        return compare({job.short_name: (job.state, job.config, job.metrics()) for job in jobs}, steps)

    # --- What is done with it.

    def cancel(self) -> Job:
        """It ends at its next step boundary."""
        return self._do("CancelJob")

    def pause(self) -> Job:
        """It is saved at its next step boundary and gives the ranks to the next job."""
        return self._do("PauseJob")

    def resume(self) -> Job:
        """A paused job goes on from where it was saved."""
        return self._do("ResumeJob")

    def release(self) -> Job:
        """A held job goes on from its newest checkpoint."""
        return self._do("ReleaseJob")

    def delete(self) -> None:
        """Removes a job that has ended, with its checkpoints."""
        request = job_service_pb2.DeleteJobRequest(request_id=str(uuid.uuid4()), name=self.name)
        self._connection.call(self._connection.jobs.DeleteJob, request)

    def edit(self, changes: Mapping[str, Any] | None = None, **short: Any) -> Job:
        """Changes what is still ahead of it: `job.edit(steps=500)`, or fields by their paths in a job file:
        `job.edit({"run.lr_scheduler.min_lr_factor": 0.1})`. Short names are steps, lr, validation_interval,
        validation_steps, checkpoint_interval, keep_latest_k, keep_best, sample_interval, step_limit and
        time_limit_seconds."""
        named = dict(changes or {})
        for name, value in short.items():
            if name not in _EDITABLE:
                raise TypeError(f"Job.edit() has no argument {name!r}{did_you_mean(name, _EDITABLE)} (it has changes, "
                                f"{', '.join(_EDITABLE)})")
            named[_EDITABLE[name]] = value
        if not named:
            raise refuse("changes", "are none; give a field to change, such as steps=500")
        request = job_service_pb2.EditJobRequest(request_id=str(uuid.uuid4()), name=self.name)
        request.fields.extend(job_file.change(self._connection, request.spec, named))
        self._seen(self._connection.call(self._connection.jobs.EditJob, request).job)
        return self

    def label(self, *remove: str, **labels: str) -> Job:
        """Sets labels, and removes those that are named alone."""
        request = job_service_pb2.LabelJobRequest(request_id=str(uuid.uuid4()), name=self.name, set=labels,
                                                  remove=remove)
        self._seen(self._connection.call(self._connection.jobs.LabelJob, request).job)
        return self

    # --- What has come of it.

    def checkpoints(self, *, verify: bool = False) -> list[Checkpoint]:
        """Its checkpoints and exports. `verify` reads all files and compares their digests."""
        return checkpoints.list_checkpoints(self._connection, self.name, verify)

    def export(self, step: int | None = None, *, dtype: str = "", progress: ExportProgress | None = None) -> Checkpoint:
        """Writes a checkpoint, by default the newest, as a Hugging Face folder, whose `download(folder)` brings it
        here. `dtype`: float32, the default, bfloat16 or float16."""
        name = f"checkpoints/{self.short_name}" + ("" if step is None else f"/step-{step}")
        return checkpoints.export(self._connection, name, dtype, progress)

    def evaluate(self, data: str | Mapping[str, Any] | None = None, *, seq_len: int | None = None,
                 global_batch_size: int | None = None, batches: int | None = None, no_wait: bool | None = None,
                 progress: EvaluationProgress | None = None) -> Evaluation:
        """The loss of its newest checkpoint on `data`, by default its validation data; see Client.evaluate."""
        fields = {"seq_len": seq_len, "global_batch_size": global_batch_size, "batches": batches, "no_wait": no_wait}
        return evaluation.evaluate(self._connection, self, data, fields, progress)

    @overload
    def generate(self, prompt: Prompt | Sequence[Prompt] | None = ..., *, stream: Literal[False] = ...,
                 **arguments: Any) -> Generation: ...

    @overload
    def generate(self, prompt: Prompt | Sequence[Prompt] | None = ..., *, stream: Literal[True],
                 **arguments: Any) -> Iterator[Piece]: ...

    def generate(self, prompt: Prompt | Sequence[Prompt] | None = None, *, stream: bool = False,
                 **arguments: Any) -> Generation | Iterator[Piece]:
        """Text from its weights as they are, also while it trains; the arguments are those of Client.generate."""
        return generation.generate(self._connection, self, prompt, stream=stream, **arguments)

    @property
    def tokenizer(self) -> Tokenizer:
        resolved = self.info().resolved
        tokenizer = resolved.data.tokenizer
        return Tokenizer(self._connection, resolved.model, "" if tokenizer in ("auto", "bytes") else tokenizer)

    @property
    def short_name(self) -> str:
        return self.name.removeprefix("jobs/")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and (self.name, self._connection.address) == (other.name, other._connection.address)

    def __hash__(self) -> int:
        return hash((self.name, self._connection.address))

    def __repr__(self) -> str:
        return job_text(self._last)

    def _repr_html_(self) -> str:
        return job_html(self.info(), self.plot())

    def _seen(self, message: job_pb2.Job) -> None:
        self._last = message

    def _lines(self, method: Callable[..., Any], request_type: Any, follow: bool) -> Iterator[str]:
        request = request_type(name=self.name, follow=follow)
        for message in self._connection.stream(method, lambda: request):
            request.after_revision = message.revision
            yield message.line

    def _tell_waits(self, display: Display, shown: bool) -> contextlib.AbstractContextManager[Any]:
        def ask() -> str:
            request = job_service_pb2.GetJobRequest(name=self.name)
            job = self._connection.call(self._connection.jobs.GetJob, request, seconds=5.0, retry_seconds=0.0).job
            return job.wait.reason

        if not shown:
            return contextlib.nullcontext()
        return WaitTeller(ask, display.say)

    def _do(self, method: str) -> Job:
        request = getattr(job_service_pb2, f"{method}Request")(request_id=str(uuid.uuid4()), name=self.name)
        self._seen(self._connection.call(getattr(self._connection.jobs, method), request).job)
        return self
