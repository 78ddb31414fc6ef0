# SPDX-License-Identifier: Apache-2.0
"""Comparison: jobs side by side."""

from __future__ import annotations

import dataclasses
import html
import json
from typing import Any, Mapping, Sequence

import numpy as np

from meshloom.chart import Chart
from meshloom.metrics import Metrics


@dataclasses.dataclass(frozen=True, repr=False)
class Comparison:
    """`fields`: where the configs differ, by path, a value for each job (None: it does not have it). `losses` and
    `validation`: by step, of steps that all have done; `bits_per_byte` the losses of steps whose text is known in all,
    which compare across tokenizers. `metrics` has all that they were made of."""

    jobs: tuple[str, ...]
    states: tuple[str, ...]
    fields: dict[str, tuple[Any, ...]]
    losses: dict[int, tuple[float, ...]]
    validation: dict[int, tuple[float, ...]]
    bits_per_byte: dict[int, tuple[float, ...]]
    metrics: tuple[Metrics, ...]

    def rows(self) -> list[list[str]]:
        """All of it as a table of text."""
        table = [["", *self.jobs], ["state", *self.states], ["tokens/s, median", *map(_median_rate, self.metrics)]]
        table += [[path, *map(_value, values)] for path, values in self.fields.items()]
        table += [[f"loss, step {step}", *(f"{loss:.4f}" for loss in row)] for step, row in self.losses.items()]
        table += [[f"validation loss, step {step}", *(f"{loss:.4f}" for loss in row)]
                  for step, row in self.validation.items()]
        table += [[f"bits per byte, step {step}", *(f"{bits:.4f}" for bits in row)]
                  for step, row in self.bits_per_byte.items()]
        return table

    def plot(self, name: str = "loss") -> Chart:
        return plot_metrics(dict(zip(self.jobs, self.metrics)), name)

    def __repr__(self) -> str:
        table = self.rows()
        widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
        lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip() for row in table]
        return "\n".join(lines if self.losses else [*lines, "no step was done by all of them"])

    def _repr_html_(self) -> str:
        body = "".join("<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in row) + "</tr>"
                       for row in self.rows())
        return f"<table>{body}</table>{self.plot().svg()}"


def compare(jobs: Mapping[str, tuple[str, Mapping[str, Any], Metrics]], most_steps: int) -> Comparison:
    """By name: the state, the resolved config and the metrics of each job."""
    states, configs, metrics = zip(*jobs.values())
    flat = [dict(_leaves(config)) for config in configs]
    paths = list(dict.fromkeys(path for config in flat for path in config))
    fields = {path: tuple(config.get(path) for config in flat) for path in paths
              if len({json.dumps(config.get(path), default=str) for config in flat}) > 1}
    return Comparison(tuple(jobs), states, fields,
                      _common([item.curve("loss") for item in metrics], most_steps),
                      _common([item.validation.curve("validation_loss") for item in metrics], most_steps),
                      _common([item.curve("bits_per_byte") for item in metrics], most_steps), metrics)


def plot_metrics(metrics: Mapping[str, Metrics], name: str) -> Chart:
    """One column of several jobs, that of the steps or else that of the validations."""
    curves = {job: item.curve(name) or item.validation.curve(name) for job, item in metrics.items()}
    if not any(curves.values()):
        for item in metrics.values():
            if "step" in item and name not in item.validation:
                item[name]  # raises KeyError with the columns that there are
    return Chart(curves, f"{name} by step")


def _leaves(config: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in config.items():
        path = f"{prefix}{name}"
        found += _leaves(value, f"{path}.") if isinstance(value, Mapping) else [(path, value)]
    return found


def _common(curves: Sequence[Mapping[int, float]], most: int) -> dict[int, tuple[float, ...]]:
    """The first, the last, and some evenly between them."""
    steps = sorted(set.intersection(*(set(curve) for curve in curves))) if curves else []
    if not steps:
        return {}
    chosen = np.unique(np.linspace(0, len(steps) - 1, min(most, len(steps))).round().astype(int))
    return {steps[i]: tuple(curve[steps[i]] for curve in curves) for i in chosen}


def _median_rate(metrics: Metrics) -> str:
    rates = list(metrics.curve("tokens_per_second").values())
    return f"{np.median(rates):.0f}" if rates else "-"


def _value(value: Any) -> str:
    return "-" if value is None else str(value)
