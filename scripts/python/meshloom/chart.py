# SPDX-License-Identifier: Apache-2.0
"""Chart: curves over steps as text, as SVG and as a figure of matplotlib."""

from __future__ import annotations

import dataclasses
import html
import math
import shutil
from typing import Any, Mapping, Sequence

from meshloom.errors import FailedPrecondition

# Unicode numbers the dots of a braille cell 1 2 3 7 down the left and 4 5 6 8 down the right.
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#7f7f7f")
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 640, 300, 60, 30, 28


@dataclasses.dataclass(frozen=True)
class _Range:
    first: int
    last: int
    low: float
    high: float

    def across(self, step: float) -> float:
        return 0.0 if self.last == self.first else (step - self.first) / (self.last - self.first)

    def up(self, value: float) -> float:
        return 0.5 if self.high == self.low else (value - self.low) / (self.high - self.low)


class Chart:
    """In a terminal its text is the chart, in a notebook it is shown as SVG. `figure()` is for further work on it."""

    def __init__(self, curves: Mapping[str, Mapping[int, float]], title: str) -> None:
        self.title = title
        self.curves = {name: dict(sorted(curve.items())) for name, curve in curves.items()}

    def text(self, columns: int = 80, rows: int = 16) -> str:
        """Lines of braille characters; each curve has a chart of its own with the same axes."""
        span = self._range()
        if span is None:
            return f"{self.title}: nothing to draw yet"
        parts = [_text_chart(name, curve, span, max(columns, 24), max(rows, 2))
                 for name, curve in self.curves.items() if curve]
        return "\n".join([self.title, *parts])

    def svg(self) -> str:
        """A whole SVG element; needs nothing but a reader of SVG."""
        span = self._range()
        if span is None:
            return f"<svg xmlns='http://www.w3.org/2000/svg' width='{_WIDTH}' height='20'><text x='4' y='14' " \
                   f"font-size='12'>{html.escape(self.title)}: nothing to draw yet</text></svg>"
        drawn = [item for item in self.curves.items() if item[1]]
        lines = [_svg_curve(curve, span, number) for number, (_, curve) in enumerate(drawn)]
        return (f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_WIDTH} {_HEIGHT}' width='{_WIDTH}' "
                f"height='{_HEIGHT}' font-family='sans-serif' font-size='11'><rect width='100%' height='100%' "
                f"fill='white'/>{_svg_axes(span)}{''.join(lines)}{_svg_legend(self.title, drawn)}</svg>")

    def figure(self, axes: Any = None) -> Any:
        """The Figure of matplotlib, which must be installed; drawn into `axes` where they are given."""
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise FailedPrecondition("matplotlib is not installed here: pip install matplotlib, or python3-matplotlib "
                                     "of Debian. text() and svg() need nothing", reason="NO_MATPLOTLIB") from None
        if axes is None:
            axes = Figure(figsize=(8, 4), layout="constrained").subplots()
        for name, curve in self.curves.items():
            axes.plot(list(curve), list(curve.values()), label=name)
        axes.set_xlabel("step")
        axes.set_title(self.title)
        axes.legend()
        return axes.figure

    def _range(self) -> _Range | None:
        steps = [step for curve in self.curves.values() for step in curve]
        values = [value for curve in self.curves.values() for value in curve.values()]
        return _Range(min(steps), max(steps), min(values), max(values)) if steps else None

    def __repr__(self) -> str:
        return self.text(columns=min(shutil.get_terminal_size().columns, 100))

    def _repr_html_(self) -> str:
        return self.svg()


def _means(curve: Mapping[int, float], span: _Range, width: int) -> list[tuple[int, float]]:
    """Of more points than dots a column has their mean."""
    sums: dict[int, list[float]] = {}
    for step, value in curve.items():
        sums.setdefault(round(span.across(step) * (width - 1)), []).append(value)
    return [(x, math.fsum(values) / len(values)) for x, values in sorted(sums.items())]


def _text_chart(name: str, curve: Mapping[int, float], span: _Range, columns: int, rows: int) -> str:
    top, bottom = f"{span.high:.4g}", f"{span.low:.4g}"
    margin = max(len(top), len(bottom))
    cells = columns - margin - 2
    grid = [[0] * cells for _ in range(rows)]
    height = 4 * rows
    before: tuple[int, int] | None = None
    for x, value in _means(curve, span, 2 * cells):
        y = height - 1 - round(span.up(value) * (height - 1))
        for dot_x, dot_y in _line(before or (x, y), (x, y)):
            grid[dot_y // 4][dot_x // 2] |= _DOTS[dot_x % 2][dot_y % 4]
        before = (x, y)
    lines = []
    for index, row in enumerate(grid):
        label = top if index == 0 else bottom if index == rows - 1 else ""
        body = "".join(chr(0x2800 + dots) if dots else " " for dots in row)
        lines.append(f"{label:>{margin}} ┤{body}".rstrip())
    first, last = str(span.first), str(span.last)
    lines.append(" " * (margin + 2) + first + last.rjust(max(cells - len(first), 0)))
    step, value = list(curve.items())[-1]
    return "\n".join([*lines, f"{name}: {value:.4g} at step {step}"])


def _line(start: tuple[int, int], end: tuple[int, int]) -> list[tuple[int, int]]:
    """All dots from one point to the next, so that few points are a curve as well."""
    count = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
    return [(start[0] + round((end[0] - start[0]) * i / count), start[1] + round((end[1] - start[1]) * i / count))
            for i in range(count + 1)]


def _place(span: _Range, step: float, value: float) -> tuple[float, float]:
    x = _LEFT + span.across(step) * (_WIDTH - _LEFT - 10)
    return x, _HEIGHT - _BOTTOM - span.up(value) * (_HEIGHT - _BOTTOM - _TOP)


def _svg_axes(span: _Range) -> str:
    parts = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        value, step = span.low + share * (span.high - span.low), round(span.first + share * (span.last - span.first))
        x, y = _place(span, step, value)
        parts.append(f"<line x1='{_LEFT}' x2='{_WIDTH - 10}' y1='{y:.1f}' y2='{y:.1f}' stroke='#ddd'/>"
                     f"<text x='{_LEFT - 6}' y='{y + 4:.1f}' text-anchor='end'>{value:.4g}</text>"
                     f"<text x='{x:.1f}' y='{_HEIGHT - 10}' text-anchor='middle'>{step}</text>")
    return "".join(parts)


def _svg_curve(curve: Mapping[int, float], span: _Range, number: int) -> str:
    width = span.last - span.first or 1
    points = [_place(span, span.first + x / 511 * width, value) for x, value in _means(curve, span, 512)]
    colour = _COLOURS[number % len(_COLOURS)]
    if len(points) == 1:
        return f"<circle cx='{points[0][0]:.1f}' cy='{points[0][1]:.1f}' r='3' fill='{colour}'/>"
    text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f"<polyline points='{text}' fill='none' stroke='{colour}' stroke-width='1.5'/>"


def _svg_legend(title: str, curves: Sequence[tuple[str, Mapping[int, float]]]) -> str:
    parts = [f"<text x='{_LEFT}' y='16' font-weight='bold'>{html.escape(title)}</text>"]
    for number, (name, curve) in enumerate(curves):
        last = list(curve.values())[-1]
        parts.append(f"<text x='{_WIDTH - 16}' y='{_TOP + 14 + 14 * number}' text-anchor='end' "
                     f"fill='{_COLOURS[number % len(_COLOURS)]}'>{html.escape(name)}: {last:.4g}</text>")
    return "".join(parts)
