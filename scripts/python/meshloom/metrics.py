# SPDX-License-Identifier: Apache-2.0
"""Metrics of a job as columns."""

from __future__ import annotations

import json
from typing import Any, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from meshloom.hints import did_you_mean
from meshloom.metrics_line import tell_not_finite

Column = npt.NDArray[Any]


class Metrics(Mapping[str, Column]):
    """Columns by name, all of one length: `metrics["loss"]`. What a line does not have is NaN. Of a step "step",
    "loss" (mean over its labels), "bits_per_byte", "grad_norm", "lr", "tokens_per_second", "mfu", "tokens",
    "memory_bytes", "elapsed", "goodput", "seconds_..." by phase and "lost_seconds_..." by cause; of a validation "step", "validation_loss", "perplexity",
    "validation_bits_per_byte" and those of further sets, as `metrics.validation`. `pandas.DataFrame(dict(metrics))` makes a table."""

    def __init__(self, columns: Mapping[str, Column], validation: Metrics | None = None) -> None:
        self._columns = dict(columns)
        self._validation = validation

    @property
    def validation(self) -> Metrics:
        """The columns of the validations."""
        return self if self._validation is None else self._validation

    def __getitem__(self, name: str) -> Column:
        if name in self._columns:
            return self._columns[name]
        raise KeyError(f"there is no column {name!r}{did_you_mean(name, self._columns)}; there are "
                       f"{', '.join(self._columns) or 'none yet'}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        """How many columns there are; `len(metrics["step"])` is the number of lines."""
        return len(self._columns)

    def curve(self, name: str) -> dict[int, float]:
        """The finite values of a column by step; empty where there is no such column."""
        if name not in self._columns:
            return {}
        pairs = zip(self["step"].tolist(), self[name].tolist())
        return {int(step): value for step, value in pairs if np.isfinite(value)}

    def __repr__(self) -> str:
        lines = len(self._columns.get("step", ()))
        return f"Metrics({lines} lines of {', '.join(self._columns) or 'nothing'})"


def read_metrics(lines: Iterator[str]) -> Metrics:
    """Of the lines of a job's metrics.jsonl. Of a step that is told twice the last counts."""
    steps: dict[int, dict[str, Any]] = {}
    validations: dict[int, dict[str, Any]] = {}
    for line in lines:
        entry = json.loads(line)
        if not isinstance(entry, dict) or not isinstance(entry.get("step"), int):
            continue
        tell_not_finite(entry)
        validates = any(key.startswith("validation_loss") for key in entry)
        (validations if validates else steps)[entry["step"]] = entry
    return Metrics(_columns(steps), Metrics(_columns(validations)))


def _columns(entries: Mapping[int, Mapping[str, Any]]) -> dict[str, Column]:
    rows = [entries[step] for step in sorted(entries)]
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {name: _column([row.get(name) for row in rows]) for name in names}


def _column(values: list[Any]) -> Column:
    if any(isinstance(value, str) for value in values):
        return np.array(values, object)
    if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        return np.array(values, np.int64)
    return np.array([np.nan if value is None else float(value) for value in values])
