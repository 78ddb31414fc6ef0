# SPDX-License-Identifier: Apache-2.0
"""FileUpload: a file of this machine on its way to the daemon."""

from __future__ import annotations

import hashlib
import pathlib
import uuid
from typing import Callable, Mapping

from meshloom import errors, uploads
from meshloom.connection import Connection
from meshloom.messages import refuse
from meshloom.v1 import upload_service_pb2

Progress = Callable[[str, int, int], None]  #: of a file's name, how many of its bytes are sent, and its size

Earlier = Mapping[tuple[str, int, str], upload_service_pb2.Upload]


def earlier_uploads(connection: Connection) -> Earlier:
    """What a break has left behind, by name, size and digest."""
    pages = connection.pages(connection.uploads.ListUploads, upload_service_pb2.ListUploadsRequest())
    return {(item.file_name, item.size_bytes, item.sha256): item for page in pages for item in page.uploads}


class FileUpload:
    """begin(), then send() and finish() as far as they are needed."""

    def __init__(self, connection: Connection, path: pathlib.Path, progress: Progress | None) -> None:
        self._connection = connection
        self.path = path
        self._progress = progress
        try:
            with path.open("rb") as file:
                self.sha256 = hashlib.file_digest(file, "sha256").hexdigest()
                self.size = file.tell()
        except OSError as error:
            raise refuse("file", f"{path}: {error.strerror}") from None
        self.upload = upload_service_pb2.Upload()

    def begin(self, earlier: Earlier, name: str = "") -> None:
        """`name`: what the daemon is to call it, by default its own."""
        name = name or self.path.name
        self.upload = earlier.get((name, self.size, self.sha256)) or self._connection.call(
            self._connection.uploads.CreateUpload, upload_service_pb2.CreateUploadRequest(
                request_id=str(uuid.uuid4()), file_name=name, size_bytes=self.size, sha256=self.sha256)).upload

    def read(self, offset: int, size: int) -> bytes:
        with self.path.open("rb") as file:
            file.seek(offset)
            data = file.read(size)
        if len(data) != size:
            raise errors.MeshloomError(f"{self.path} has become shorter while it was sent")
        return data

    def send(self, end: int) -> None:
        """Up to the byte `end`."""
        def read(offset: int, size: int) -> bytes:
            data = self.read(offset, size)
            if self._progress is not None:
                self._progress(self.path.name, offset + size, self.size)
            return data

        self.upload = uploads.send(self._connection, self.upload, read, end)

    def finish(self) -> None:
        """Sends what is left, and has it compared with its digest."""
        if self._progress is not None and self.upload.committed_bytes == self.size:
            self._progress(self.path.name, self.size, self.size)
        self.send(self.size)
        if self.upload.state != upload_service_pb2.UPLOAD_STATE_COMPLETE:
            self.upload = uploads.finish(self._connection, self.upload.name)

    def forget(self) -> None:
        """Once somebody else at the daemon has the bytes."""
        request = upload_service_pb2.AbortUploadRequest(request_id=str(uuid.uuid4()), name=self.upload.name)
        try:
            self._connection.call(self._connection.uploads.AbortUpload, request)
        except errors.MeshloomError:
            pass  # the daemon forgets it by itself after a day
