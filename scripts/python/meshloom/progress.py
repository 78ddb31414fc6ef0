# SPDX-License-Identifier: Apache-2.0
"""Display: one line of progress that is written over, in terminals and notebooks; a line now and then elsewhere."""

from __future__ import annotations

import html
import shutil
import sys
import threading
import time
from types import TracebackType
from typing import Any, Callable

from meshloom.errors import MeshloomError
from meshloom.job_events import JobEvent

_BETWEEN_UPDATES = 0.25  # seconds, of a line that is written over
_BETWEEN_LINES = 10.0  # seconds, of lines that stay
_FIRST_WAIT, _NEXT_WAIT = 3.0, 20.0  # seconds, after which it is told what a job waits for


class Display:
    """Writes to standard error, or into the output of a notebook's cell. `with` ends its line. May be used by several
    threads."""

    def __init__(self, name: str, shown: bool = True) -> None:
        self._name = name
        self._shown = shown
        self._cell = _notebook_cell() if shown else None
        self._terminal = self._cell is None and sys.stderr is not None and sys.stderr.isatty()
        self._told = 0.0
        self._line = ""
        self._drawn = 0  # characters of the line that is on the terminal
        self._first: tuple[int, float] | None = None  # a step, and when it was seen
        self._validation = ""
        self._lock = threading.Lock()  # for all of the above, and so that lines do not mix

    def __enter__(self) -> Display:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if not self._shown:
            return
        with self._lock:
            if self._line and self._terminal:
                self._draw()
                print(file=sys.stderr, flush=True)
                self._drawn = 0
            elif self._line and self._cell is not None:
                self._draw()

    def show(self, event: JobEvent, steps: int) -> None:
        if not self._shown:
            return
        with self._lock:
            if event.kind == "note":
                self._print(event.text)
            else:
                self._show(event, steps)

    def _show(self, event: JobEvent, steps: int) -> None:
        if event.kind == "validation" and event.loss is not None:
            self._validation = f", validation {event.loss:.4f}"
        self._line = self._text(event, steps)
        now, ended = time.monotonic(), event.kind == "state"
        if self._terminal or self._cell is not None:
            if ended or now - self._told >= _BETWEEN_UPDATES:
                self._told = now
                self._draw()
        elif ended or now - self._told >= _BETWEEN_LINES:
            self._told = now
            print(self._line, file=sys.stderr, flush=True)

    def _text(self, event: JobEvent, steps: int) -> str:
        text = f"{self._name}: {event.state}"
        if event.kind == "tokenizing":
            return f"{text}, tokenizing {event.text}: {event.values['bytes'] / 1e6:.1f} of " \
                   f"{event.values['total_bytes'] / 1e6:.1f} MB"
        text += f", step {event.step}" + (f"/{steps}" if steps else "")
        if event.kind == "state":
            return text + self._validation + (f": {event.text}" if event.text else "")
        if event.kind == "step" and event.loss is not None:
            text += f", loss {event.loss:.4f}"
            if "bits_per_byte" in event.values:
                text += f" ({event.values['bits_per_byte']:.3f} bits/byte)"
        return text + self._validation + self._left(event.step, steps)

    def _left(self, step: int, steps: int) -> str:
        now = time.monotonic()
        self._first = self._first or (step, now)
        done = step - self._first[0]
        if done < 1 or steps <= step:
            return ""
        seconds = (now - self._first[1]) / done * (steps - step)
        return f", {int(seconds // 60)}:{int(seconds % 60):02d} left"

    def say(self, text: str) -> None:
        """A line that stays, above the one that is written over."""
        with self._lock:
            self._print(text)

    def _print(self, text: str) -> None:
        if self._terminal and self._drawn:
            print("\r" + " " * self._drawn + "\r", end="", file=sys.stderr)
            self._drawn = 0
        print(f"{self._name}: {text}", file=sys.stderr, flush=True)

    def _draw(self) -> None:
        if self._cell is not None:
            self._cell.update(_Html(f"<code>{html.escape(self._line)}</code>", self._line))
            return
        line = self._line[:max(shutil.get_terminal_size().columns - 1, 20)]
        print("\r" + line.ljust(self._drawn), end="", file=sys.stderr, flush=True)
        self._drawn = len(line)


class WaitTeller:
    """Asks from time to time what a job waits for, as long as `with` lasts, and says so where it is something new."""

    def __init__(self, ask: Callable[[], str], say: Callable[[str], None]) -> None:
        self._ask = ask
        self._say = say
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="meshloom waits", daemon=True)

    def __enter__(self) -> WaitTeller:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._over.set()
        self._thread.join(timeout=5)  # as long as it may be asking

    def _run(self) -> None:
        pause, said = _FIRST_WAIT, ""
        while not self._over.wait(pause):
            pause = _NEXT_WAIT
            try:
                waits = self._ask()
            except MeshloomError:
                continue  # whoever follows the job tells of it
            if waits and waits != said and not self._over.is_set():
                self._say(f"waits {waits}")
            said = waits


class _Html:
    def __init__(self, text: str, plain: str) -> None:
        self._text, self._plain = text, plain

    def _repr_html_(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return self._plain


def _notebook_cell() -> Any:
    """What a notebook shows in the place of what it has shown before; None where there is no notebook."""
    shell = sys.modules.get("IPython")
    running = shell.get_ipython() if shell is not None else None
    if running is None or not hasattr(running, "kernel"):
        return None
    from IPython.display import display

    return display(_Html("", ""), display_id=True)
