# SPDX-License-Identifier: Apache-2.0
"""Lease: keeps a run of this process alive, and tells what it waits for."""

from __future__ import annotations

import logging
import threading
import time

from meshloom import errors
from meshloom.connection import Connection
from meshloom.v1 import run_service_pb2

LEASE_SECONDS = 60  #: of the runs of this package, which a process that is gone holds the ranks no longer than
_TOLD_AFTER = 3.0  # seconds of waiting
_TOLD_AGAIN = 60.0

logger = logging.getLogger("meshloom")  # its warnings go to standard error where nothing else is set up


class Lease:
    """Heartbeats by a thread that ends with stop() and with the process, and is not there in a fork of it. It holds
    nothing of the run itself, so that a run that nobody has any more is let go."""

    def __init__(self, connection: Connection, run: str, token: str, seconds: int) -> None:
        self._connection = connection
        self._run = run
        self._token = token
        self._pause = min(10.0, seconds / 4)
        self._call_seconds = max(1.0, min(10.0, seconds / 3))
        self._stopped = threading.Event()
        self._waits = ""
        self._told = 0.0
        self._thread = threading.Thread(target=self._beat, name=f"{run} heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def _beat(self) -> None:
        request = run_service_pb2.HeartbeatRequest(name=self._run)
        pause = min(_TOLD_AFTER, self._pause)
        while not self._stopped.wait(pause):
            pause = self._pause
            try:
                answer = self._connection.call(self._connection.runs.Heartbeat, request, self._token,
                                               seconds=self._call_seconds, retry_seconds=0.0)
            except (errors.RunClosed, errors.NotFound):
                return  # the run has ended
            except errors.MeshloomError as error:
                if self._connection.closed or error.reason == "TOKEN_INVALID":
                    return
                continue  # verbs tell of it, and it may pass before the lease ends
            self._tell(answer)

    def _tell(self, answer: run_service_pb2.HeartbeatResponse) -> None:
        """Whom the run waits behind, once that is known or has become another one, and now and then."""
        ahead = ", ".join(item.name for item in answer.wait.ahead) or answer.wait.drained
        now = time.monotonic()
        if ahead and (ahead != self._waits or now >= self._told + _TOLD_AGAIN):
            self._told = now
            logger.warning("%s waits for the ranks: %s", self._run, answer.wait.reason)
        elif self._waits and not ahead:
            logger.warning("%s has the ranks", self._run)
        self._waits = ahead
