# SPDX-License-Identifier: Apache-2.0
"""Usage: python3 -m meshloom.tracking.wandb JOB --project PROJECT [--entity E] [--mode MODE] [--address HOST:PORT]

Sends a job to Weights & Biases as it trains, by the package wandb with the login of this account. Started again, it goes
on with the same run behind what that has.
"""

from __future__ import annotations

import argparse
import collections
from typing import Any

import wandb

from meshloom.client import Client
from meshloom.jobs import Job
from meshloom.tracking.course import Row, run_name, send


class WandbRun:
    """A tracker of course.py. wandb takes rows in the order of their steps alone, so that a row which is sent again
    under another name travels with the next step, and has a step of its own to be drawn over."""

    def __init__(self, job: Job, project: str, entity: str | None = None, mode: str | None = None) -> None:
        self._run: Any = wandb.init(project=project, entity=entity, mode=mode, id=run_name(job), name=job.short_name,
                                    resume=None if mode == "offline" else "allow", config=job.config)
        self._waiting: collections.deque[Row] = collections.deque()
        self._known: set[str] = set()
        self._last = self.last_step()

    def last_step(self) -> int:
        return int(getattr(self._run, "starting_step", 0) or 0) - 1

    def log(self, row: Row) -> None:
        if row.again:
            self._waiting.append(row)
            return
        self._send(row.step, dict(row.values))

    def end(self, job: Job) -> None:
        while self._waiting:
            self._send(self._last + 1, {})
        self._run.summary["state"] = job.state
        self._run.finish(exit_code=0 if job.state == "succeeded" else 1)

    def _send(self, step: int, values: dict[str, float]) -> None:
        if self._waiting:
            again = self._waiting.popleft()
            if again.again not in self._known:
                self._known.add(again.again)
                self._run.define_metric(f"{again.again}/*", step_metric=f"{again.again}/step")
            values.update({f"{again.again}/{name}": value for name, value in again.values.items()})
            values[f"{again.again}/step"] = again.step
        self._run.log(values, step=step)
        self._last = step


def main() -> None:
    parser = argparse.ArgumentParser(prog="python3 -m meshloom.tracking.wandb", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job")
    parser.add_argument("--project", required=True)
    parser.add_argument("--entity")
    parser.add_argument("--mode", choices=("online", "offline"), help="of wandb.init")
    parser.add_argument("--address", help="of the daemon; default: MESHLOOM_ADDRESS")
    options = parser.parse_args()
    with Client(options.address) as client:
        job = client.job(options.job)
        send(client, job, WandbRun(job, options.project, options.entity, options.mode))


if __name__ == "__main__":
    main()
