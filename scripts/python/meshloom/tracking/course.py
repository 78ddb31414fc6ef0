# SPDX-License-Identifier: Apache-2.0
"""What every tracker is sent of a job: each step once, also over restarts of the daemon and of the sender."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Iterable, Iterator, Mapping, Protocol

from meshloom.client import Client
from meshloom.jobs import Job
from meshloom.metrics_line import MetricsLine

_NAMES = {"loss": "train/loss", "bits_per_byte": "train/bits_per_byte", "grad_norm": "train/grad_norm",
          "lr": "train/lr", "tokens": "train/tokens", "tokens_per_second": "speed/tokens_per_second",
          "mfu": "speed/mfu", "goodput": "speed/goodput", "memory_bytes": "memory/bytes",
          "validation_loss": "validation/loss", "perplexity": "validation/perplexity",
          "validation_bits_per_byte": "validation/bits_per_byte"}
# What has a name behind it: a phase, a cause, a validation set.
_FAMILIES = (("seconds_", "seconds/{}"), ("lost_seconds_", "lost_seconds/{}"),
             ("validation_loss_", "validation_{}/loss"), ("perplexity_", "validation_{}/perplexity"),
             ("validation_bits_per_byte_", "validation_{}/bits_per_byte"))


def shown_name(name: str) -> str | None:
    """What a value of metrics.jsonl is called in trackers, as in TensorBoard; None for one that is not shown."""
    if name in _NAMES:
        return _NAMES[name]
    for prefix, shown in _FAMILIES:
        if name.startswith(prefix):
            return shown.format(name[len(prefix):])
    return None


@dataclasses.dataclass(frozen=True)
class Row:
    """All values of a step, with those of a validation behind it."""

    step: int
    values: Mapping[str, float]
    again: str = ""  # "attempt_2" where an edit has made the step other than it was sent


class Tracker(Protocol):
    """A run of a tracker."""

    def last_step(self) -> int:
        """The last step that it has; -1: none."""

    def log(self, row: Row) -> None:
        """Steps grow, but for rows with `again`, which are to stand beside what was sent."""

    def end(self, job: Job) -> None:
        """The job has ended."""


def rows_of(lines: Iterable[MetricsLine]) -> Iterator[Row]:
    """A validation is told with its step. A step that is told again, which an edit has made another, is marked."""
    last = -1
    row: Row | None = None
    for line in lines:
        values = {shown: value for name, value in line.values.items() if (shown := shown_name(name))}
        if row is not None and line.is_validation and line.step == row.step:
            row = dataclasses.replace(row, values={**row.values, **values})
            continue
        if row is not None:
            yield row
        row = Row(line.step, values, f"attempt_{line.attempt}" if line.step <= last else "")
        last = max(last, line.step)
    if row is not None:
        yield row


def send(client: Client, job: Job, tracker: Tracker) -> None:
    """Sends what the tracker has not yet, until the job has ended."""
    have = tracker.last_step()
    for row in rows_of(client.follow_metrics(job)):
        if row.again or row.step > have:
            tracker.log(row)
    tracker.end(job)


def run_name(job: Job) -> str:
    """Of a job and its creation: another job that gets the same name later is another run."""
    return f"{job.short_name}-{re.sub(r'[^0-9]', '', job.info().create_time)}"


def flat(config: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a config by their paths."""
    for key, value in config.items():
        name = f"{path}.{key}" if path else key
        if isinstance(value, Mapping):
            yield from flat(value, name)
        else:
            yield name, value
