# SPDX-License-Identifier: Apache-2.0
"""SavedWeights: weights of a run under a name, and their files."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pathlib
from typing import Any

from meshloom import errors
from meshloom.connection import Connection
from meshloom.messages import refuse
from meshloom.v1 import checkpoint_service_pb2, run_pb2, run_service_pb2


@dataclasses.dataclass(frozen=True)
class SavedWeights:
    """`name` is what sample(weights=...) takes. On disk `folder` is the Hugging Face folder below the daemon's state dir,
    relative to it; in memory it is empty. `step`: optimizer steps behind them."""

    name: str
    step: int
    folder: str
    _connection: Connection = dataclasses.field(repr=False, compare=False)
    _token: str = dataclasses.field(repr=False, compare=False)

    def download(self, folder: str | os.PathLike[str]) -> pathlib.Path:
        """Copies weights on disk into a new folder, every file checked by its SHA-256. Goes on where it was after a
        break of the connection. What is not complete is in FOLDER.part, which is gone after an error and must not
        be there before."""
        target = pathlib.Path(folder)
        if target.exists():
            raise refuse("folder", f"{target} exists already")
        part = target.with_name(target.name + ".part")
        part.mkdir(parents=True)
        try:
            _Files(self._connection, self.name, part).receive()
            part.rename(target)
        except BaseException:
            _remove(part)
            raise
        return target

    def delete(self) -> None:
        """Lets them go at once. A sample that draws from them goes on."""
        self._connection.call(self._connection.runs.DeleteWeights, run_service_pb2.DeleteWeightsRequest(name=self.name),
                              self._token)


def saved_weights(message: run_pb2.SavedWeights, connection: Connection, token: str) -> SavedWeights:
    return SavedWeights(message.name, message.step, message.folder, connection, token)


class _Files:
    """The files of a download, one after the other."""

    def __init__(self, connection: Connection, name: str, folder: pathlib.Path) -> None:
        self._connection = connection
        self._name = name
        self._folder = folder
        self._complete = ""  # the last file that is
        self._offset = 0  # in the file behind it
        self._digest = hashlib.sha256()

    def receive(self) -> None:
        for piece in self._connection.stream(self._connection.checkpoints.ReadCheckpoint, self._request):
            self._append(piece)
        if self._offset > 0:
            raise errors.MeshloomError(f"{self._name}: the stream ended in the middle of a file")

    def _request(self) -> checkpoint_service_pb2.ReadCheckpointRequest:
        return checkpoint_service_pb2.ReadCheckpointRequest(name=self._name, after_file=self._complete,
                                                            offset=self._offset, sha256=True)

    def _append(self, piece: Any) -> None:
        path = pathlib.PurePosixPath(piece.file)
        if path.is_absolute() or not path.parts or ".." in path.parts:
            raise errors.MeshloomError(f"the daemon sent the file name {piece.file!r}, which is refused")
        if piece.offset != self._offset:
            raise errors.MeshloomError(f"{piece.file}: a piece is missing at byte {self._offset}")
        target = self._folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("ab") as file:
            file.write(piece.data)
        self._digest.update(piece.data)
        self._offset += len(piece.data)
        if not piece.sha256:
            return
        if self._offset != piece.file_size or self._digest.hexdigest() != piece.sha256:
            raise errors.MeshloomError(f"{piece.file}: size or digest is wrong")
        self._complete, self._offset, self._digest = piece.file, 0, hashlib.sha256()


def _remove(folder: pathlib.Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    if folder.exists():
        folder.rmdir()
