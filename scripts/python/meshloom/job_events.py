# SPDX-License-Identifier: Apache-2.0
"""What happens to a job, as an iterator that goes on after a break of the connection."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Iterator, Mapping

from meshloom import errors
from meshloom.connection import Connection
from meshloom.messages import short_name
from meshloom.protocol import is_repeated
from meshloom.v1 import job_pb2, job_service_pb2


@dataclasses.dataclass(frozen=True)
class JobEvent:
    """`kind`: "state", "step", "validation", "sample", "note" or "tokenizing". `step`: optimizer steps done;
    `state` that of the job then. `loss`: of a step or a validation, the mean over its labels. `values`: what else is
    measured, by name, as Metrics has it. `text`: of a sample or a note, or why it is held or has failed."""

    kind: str
    step: int
    state: str
    loss: float | None = None
    values: Mapping[str, float] = dataclasses.field(default_factory=dict)
    text: str = ""


def state_name(state: int) -> str:
    return short_name(job_pb2.JobState.DESCRIPTOR, state) or "unknown"


def events(connection: Connection, name: str, seen: Callable[[job_pb2.Job], None],
           end: float | None = None) -> Iterator[JobEvent]:
    """From the present state on, until the job has ended. `seen` is called with every state of it. At `end`, of
    time.monotonic(), it raises DeadlineExceeded."""
    request = job_service_pb2.WatchJobRequest(name=name)
    told = _Told()
    while True:
        try:
            for message in connection.stream(connection.jobs.WatchJob, lambda: request, end=end):
                request.after_revision = max(request.after_revision, message.event.revision)
                if message.event.HasField("job"):
                    seen(message.event.job)
                yield from told.of(message.event)
            return
        except errors.InvalidArgument as error:
            # Events that this client was too slow for: the present state brings it up to date.
            if error.code.name != "OUT_OF_RANGE" or request.after_revision == 0:
                raise
            request.after_revision = 0


class _Told:
    """What was told already is not told again after a break."""

    def __init__(self) -> None:
        self._state = ""
        self._step = -1
        self._validation = -1

    def of(self, event: job_pb2.JobEvent) -> Iterator[JobEvent]:
        if event.HasField("job"):
            yield from self._of_job(event.job)
        if event.HasField("step") and event.step.step != self._step:
            self._step = event.step.step
            yield JobEvent("step", event.step.step, self._state, event.step.loss, _numbers(event.step))
        if event.HasField("validation") and event.validation.step != self._validation:
            self._validation = event.validation.step
            yield JobEvent("validation", event.validation.step, self._state, event.validation.loss,
                           _numbers(event.validation))
        if event.note:
            yield JobEvent("note", max(self._step, 0), self._state, text=event.note)
        if event.HasField("sample"):
            yield JobEvent("sample", event.sample.step, self._state, text=event.sample.text)
        if event.HasField("tokenizing"):
            done = event.tokenizing
            yield JobEvent("tokenizing", 0, self._state, values={"bytes": done.bytes, "total_bytes": done.total_bytes},
                           text=done.field)

    def _of_job(self, job: job_pb2.Job) -> Iterator[JobEvent]:
        state = state_name(job.state)
        if state != self._state:
            self._state = state
            yield JobEvent("state", job.step, state, text=job.hold_reason or job.error.message)


def _numbers(message: Any) -> dict[str, float]:
    """What is told of a number that may be left out is left out here; a 0 of any other is a value."""
    numbers = {}
    for field in message.DESCRIPTOR.fields:
        if field.message_type is None and not is_repeated(field) and _is_told(message, field.name):
            value = getattr(message, field.name)
            if isinstance(value, (int, float)):
                numbers[field.name] = value
    return numbers


def _is_told(message: Any, name: str) -> bool:
    try:
        return bool(message.HasField(name))
    except ValueError:  # it has no presence, and so always a value
        return True
