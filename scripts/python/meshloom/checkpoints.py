# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of jobs and their exports as Hugging Face folders."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import uuid
from typing import Callable

from meshloom.connection import Connection
from meshloom.download import download
from meshloom.v1 import checkpoint_service_pb2

ExportProgress = Callable[[int, int], None]  #: of bytes that were read, and of all


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """`name` ("checkpoints/JOB/step-N", of an export "checkpoints/JOB/hf...") is what evaluate, generate and a job's
    checkpoint.resume_from take. `damage`: what is wrong with its files, empty where nothing was found. `best`: its
    place by validation loss among those that checkpoint.keep_best keeps, 0 for others. `notes` and `folder`, on the
    host of rank 0, are those of an export that was just written."""

    name: str
    step: int
    size_bytes: int
    create_time: str
    damage: str
    best: int
    folder: str
    notes: tuple[str, ...]
    _connection: Connection = dataclasses.field(repr=False, compare=False)

    def download(self, folder: str | os.PathLike[str]) -> pathlib.Path:
        """Copies it into a new folder here, every file checked by its SHA-256."""
        return download(self._connection, self.name, folder)

    def delete(self, *, force: bool = False) -> None:
        """FailedPrecondition for the newest and the best ones of a job unless `force`, and for one that is in use."""
        request = checkpoint_service_pb2.DeleteCheckpointRequest(request_id=str(uuid.uuid4()), name=self.name,
                                                                 force=force)
        self._connection.call(self._connection.checkpoints.DeleteCheckpoint, request)


def list_checkpoints(connection: Connection, job: str, verify: bool) -> list[Checkpoint]:
    request = checkpoint_service_pb2.ListCheckpointsRequest(job=job, verify=verify)
    pages = connection.pages(connection.checkpoints.ListCheckpoints, request)
    return [_checkpoint(item, connection) for page in pages for item in page.checkpoints]


def export(connection: Connection, name: str, dtype: str, progress: ExportProgress | None) -> Checkpoint:
    request = checkpoint_service_pb2.ExportCheckpointRequest(name=name, dtype=dtype)
    exported = checkpoint_service_pb2.ExportedFolder()
    for message in connection.stream(connection.checkpoints.ExportCheckpoint, lambda: request):
        if message.HasField("exported"):
            exported = message.exported
        elif progress is not None:
            progress(message.done_bytes, message.total_bytes)
    return _checkpoint(exported.checkpoint, connection, exported.folder, tuple(exported.notes))


def _checkpoint(message: checkpoint_service_pb2.Checkpoint, connection: Connection, folder: str = "",
                notes: tuple[str, ...] = ()) -> Checkpoint:
    return Checkpoint(message.name, message.step, message.size_bytes, message.create_time, message.damage, message.best,
                      folder, notes, connection)
