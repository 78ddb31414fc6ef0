# SPDX-License-Identifier: Apache-2.0
"""Job files for Python: mappings, texts and files, all read by the daemon as the client `meshloom` reads them."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any, Mapping

from google.protobuf.message import Message

from meshloom import errors
from meshloom.connection import Connection
from meshloom.messages import fill, plain, refuse
from meshloom.v1 import config_pb2, job_pb2, job_service_pb2

JobSource = Mapping[str, Any] | str | os.PathLike[str]  #: as of a job file, its text, or its path


class JobFile:
    """A job as it was given, and where its fields stand, for what the daemon refuses later."""

    def __init__(self, spec: job_pb2.JobSpec, name: str, lines: Mapping[str, int]) -> None:
        self.spec = spec
        self._name = name  # empty: a mapping, which has no lines
        self._lines = dict(lines)

    def placed(self, error: errors.MeshloomError) -> errors.MeshloomError:
        """The error with the line of the field that it is about before its text."""
        field = error.field
        while field and self._name:
            if field in self._lines:
                error.message = f"{self._name}:{self._lines[field]}: {error.message}"
                error.args = (error.message,)
                break
            field = field[:max(field.rfind("."), field.rfind("["), 0)]
        return error


def read_job(connection: Connection, job: JobSource) -> JobFile:
    """Raises InvalidArgument (CONFIG_INVALID) with a line for each mistake."""
    if isinstance(job, Mapping):
        return _read(connection, _as_json(job), "")
    if isinstance(job, str) and ("\n" in job or job.lstrip().startswith("{")):
        return _read(connection, job, "job")
    path = pathlib.Path(job)
    try:
        return _read(connection, path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise refuse("job", f"{path}: {error.strerror}; expected the path of a job file, its text in several lines, or "
                            f"a mapping") from None
    except UnicodeDecodeError:
        raise refuse("job", f"{path} is no text in UTF-8") from None


def read_run_config(connection: Connection, config: Mapping[str, Any]) -> config_pb2.RunConfig:
    """The `run:` of a job file alone."""
    if not isinstance(config, Mapping):
        raise refuse("config", f"{config!r} is a {type(config).__name__}, expected a mapping as the run: of a job file")
    return _read(connection, _as_json({"run": config}), "").spec.run


def change(connection: Connection, spec: job_pb2.JobSpec, changes: Mapping[str, Any]) -> list[str]:
    """Sets fields by their paths ("run.training.steps", of which "run." may be left out), or nested. Returns them. What
    is no field is answered by the daemon, which knows other trainers' words."""
    if not changes:
        return []
    paths: list[str] = []
    nested: dict[str, Any] = {}
    for path, value in changes.items():
        whole = path if path.split(".")[0] in spec.DESCRIPTOR.fields_by_name else f"run.{path}"
        for part in reversed(whole.split(".")):
            value = {part: value}
        _merge(nested, value)
        paths.append(whole)
    text = _as_json(nested)
    _read(connection, _as_json({"run": {}, **nested}), "")
    fill(spec, json.loads(text))
    return paths


def _merge(target: dict[str, Any], other: Mapping[str, Any]) -> None:
    for key, value in other.items():
        if not isinstance(value, Mapping):
            target[key] = value
            continue
        if not isinstance(target.get(key), dict):
            target[key] = {}
        _merge(target[key], value)


def _read(connection: Connection, text: str, name: str) -> JobFile:
    request = job_service_pb2.ReadConfigRequest(text=text, name=name or "job")
    try:
        answer = connection.call(connection.jobs.ReadConfig, request)
    except errors.InvalidArgument as error:
        if not name:  # all of a mapping is on one line
            error.message = error.message.replace("job:1: ", "")
            error.args = (error.message,)
        raise
    return JobFile(answer.spec, name, answer.lines)


def _as_json(job: Mapping[str, Any]) -> str:
    """On one line; numbers of numpy are numbers."""
    def other(value: Any) -> Any:
        if isinstance(value, Message):
            return plain(value)
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        if hasattr(value, "tolist"):
            return value.tolist()
        raise refuse("job", f"{value!r} is a {type(value).__name__}, which no job file holds")

    return json.dumps(job, ensure_ascii=False, default=other)
