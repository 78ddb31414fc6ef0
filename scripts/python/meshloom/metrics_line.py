# SPDX-License-Identifier: Apache-2.0
"""Metrics of a job as they are written, line by line."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Mapping


def tell_not_finite(line: dict[str, Any]) -> None:
    """Puts NaN and infinities in the places of nulls, as "not_finite" says ("loss=inf,grad_norm=nan")."""
    for item in filter(None, str(line.pop("not_finite", "")).split(",")):
        name, _, kind = item.partition("=")
        line[name] = float(kind)


@dataclasses.dataclass(frozen=True)
class MetricsLine:
    """What was measured at a step, or in a validation behind it. `values` are as `Metrics` has them, by name: numbers,
    also NaN and infinities; what is not known is left out. `client.follow_metrics(job, after=line.revision)` goes on
    behind it."""

    step: int
    is_validation: bool
    attempt: int
    time: str  # RFC 3339
    revision: int
    values: Mapping[str, float]


def read_line(text: str, revision: int) -> MetricsLine | None:
    """Of a line of metrics.jsonl; None for a line of another kind."""
    line: Any = json.loads(text)
    if not isinstance(line, dict) or not isinstance(line.get("step"), int):
        return None
    tell_not_finite(line)
    values = {}
    for name, value in line.items():
        if name not in ("step", "attempt", "lost_lines") and isinstance(value, (int, float)) and not isinstance(value, bool):
            values[name] = float(value)
    return MetricsLine(line["step"], "validation_loss" in line, int(line.get("attempt", 1)), str(line.get("time", "")),
                       revision, values)
