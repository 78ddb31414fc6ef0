# SPDX-License-Identifier: Apache-2.0
"""Future: the answer of a verb that is under way."""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import Any, Callable, Generator, TypeVar

from meshloom.errors import MeshloomError

Result = TypeVar("Result")


class Future(concurrent.futures.Future[Result]):
    """`result(timeout)`, `exception()`, `done()` and `add_done_callback()` as those of concurrent.futures; `await`
    gives the same result. A waiter that is cancelled leaves the verb alone; `cancel()` asks the daemon to.
    """

    def __init__(self, verb: str, seq: int | None = None) -> None:
        super().__init__()
        self.verb = verb
        self.seq = seq  #: its number, for verbs that have one
        self.operation = ""  #: its name at the daemon, once it is known
        self._cancel: Callable[[str], None] | None = None
        self.set_running_or_notify_cancel()

    def __await__(self) -> Generator[Any, None, Result]:
        return asyncio.shield(asyncio.wrap_future(self)).__await__()

    def cancel(self) -> bool:
        """True if the verb had not begun and never will, or is a sample, which then draws no more. A forward_backward
        that is cancelled poisons the gradients that it would have added to."""
        if self.done() or not self.operation or self._cancel is None:
            return False
        try:
            self._cancel(self.operation)
        except MeshloomError:
            return False
        return True

    def finish(self, make: Callable[[], Result]) -> None:
        """Ends it with what `make` returns or throws."""
        try:
            result = make()
        except BaseException as error:  # whatever it is, a waiter must get it
            self.set_exception(error)
        else:
            self.set_result(result)
