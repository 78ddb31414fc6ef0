# SPDX-License-Identifier: Apache-2.0
"""Jobs in experiment trackers, sent from where you are: no key of a tracker ever reaches the daemon.

`meshloom.tracking.wandb` and `meshloom.tracking.mlflow` are programs as well: python3 -m meshloom.tracking.wandb JOB.
"""

from meshloom.tracking.course import Row, Tracker, run_name, send

__all__ = ["Row", "Tracker", "run_name", "send"]
