# SPDX-License-Identifier: Apache-2.0
"""Where weights come from: a job, a checkpoint, a model of the daemon, or a Hugging Face folder of its host."""

from __future__ import annotations

from typing import Any

from meshloom.messages import refuse

_PREFIXES = {"jobs/": "job", "checkpoints/": "checkpoint", "models/": "model"}


def set_source(request: Any, source: Any) -> None:
    """Sets the field of `request` that `source` is: the name of a resource, an object that has one (Job, Model,
    Checkpoint), or else the path of a folder below the daemon's data dir."""
    name = source if isinstance(source, str) else getattr(source, "name", None)
    if not isinstance(name, str) or not name:
        raise refuse("source", f"{source!r} is none; expected a Job, a Model, a Checkpoint, \"jobs/NAME\", "
                               f"\"checkpoints/JOB/step-N\", \"models/NAME\" or a folder below the daemon's data dir")
    field = next((field for prefix, field in _PREFIXES.items() if name.startswith(prefix)), "hf_folder")
    setattr(request, field, name)
