# SPDX-License-Identifier: Apache-2.0
"""Usage: python3 -m meshloom.tracking.mlflow JOB --experiment NAME [--tracking-uri URI] [--address HOST:PORT]

Sends a job to MLflow as it trains, by the package mlflow. Started again, it goes on with the same run behind what that
has.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from mlflow.entities import Metric, Param
from mlflow.tracking import MlflowClient

from meshloom.client import Client
from meshloom.jobs import Job
from meshloom.tracking.course import Row, flat, run_name, send

_TAG = "meshloom.run"
_MOST_PARAMS = 100  # of a call
_LONGEST_PARAM = 500
_STATUS = {"succeeded": "FINISHED", "cancelled": "KILLED"}


class MlflowRun:
    """A tracker of course.py."""

    def __init__(self, job: Job, experiment: str, tracking_uri: str | None = None) -> None:
        self._client: Any = MlflowClient(tracking_uri)
        found = self._client.get_experiment_by_name(experiment)
        where = found.experiment_id if found else self._client.create_experiment(experiment)
        name = run_name(job)
        runs = self._client.search_runs([where], filter_string=f"tags.`{_TAG}` = '{name}'", max_results=1)
        self.run_id: str = runs[0].info.run_id if runs else self._begin(job, where, name)

    def _begin(self, job: Job, experiment: str, name: str) -> str:
        run_id: str = self._client.create_run(experiment, run_name=job.short_name, tags={_TAG: name}).info.run_id
        params = [Param(key, str(value)[:_LONGEST_PARAM]) for key, value in flat(job.config)]
        for begin in range(0, len(params), _MOST_PARAMS):
            self._client.log_batch(run_id, params=params[begin:begin + _MOST_PARAMS])
        return run_id

    def last_step(self) -> int:
        history = self._client.get_metric_history(self.run_id, "train/loss")
        return max((metric.step for metric in history), default=-1)

    def log(self, row: Row) -> None:
        now = int(time.time() * 1000)
        prefix = f"{row.again}/" if row.again else ""
        self._client.log_batch(self.run_id, metrics=[Metric(prefix + name, value, now, row.step)
                                                     for name, value in row.values.items()])

    def end(self, job: Job) -> None:
        self._client.set_terminated(self.run_id, status=_STATUS.get(job.state, "FAILED"))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python3 -m meshloom.tracking.mlflow", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job")
    parser.add_argument("--experiment", required=True)
    parser.add_argument("--tracking-uri", help="default: as mlflow has it")
    parser.add_argument("--address", help="of the daemon; default: MESHLOOM_ADDRESS")
    options = parser.parse_args()
    with Client(options.address) as client:
        job = client.job(options.job)
        send(client, job, MlflowRun(job, options.experiment, options.tracking_uri))


if __name__ == "__main__":
    main()
