# SPDX-License-Identifier: Apache-2.0
"""Copies of folders that the daemon has: checkpoints, exports and weights of runs."""

from __future__ import annotations

import hashlib
import os
import pathlib
from typing import Any

from meshloom import errors
from meshloom.connection import Connection
from meshloom.messages import refuse
from meshloom.v1 import checkpoint_service_pb2


def download(connection: Connection, name: str, folder: str | os.PathLike[str]) -> pathlib.Path:
    """Copies all files of `name` into a new folder, every one checked by its SHA-256. Goes on where it was after a
    break of the connection. What is not complete is in FOLDER.part, which is gone after an error and must not be there
    before."""
    target = pathlib.Path(folder)
    if target.exists():
        raise refuse("folder", f"{target} exists already")
    part = target.with_name(target.name + ".part")
    try:
        part.mkdir(parents=True)
    except OSError as error:
        raise refuse("folder", f"{part}: {error.strerror}") from None
    try:
        _Files(connection, name, part).receive()
        part.rename(target)
    except BaseException:
        _remove(part)
        raise
    return target


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
