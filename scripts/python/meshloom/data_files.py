# SPDX-License-Identifier: Apache-2.0
"""Files of data that are brought below the daemon's data dir."""

from __future__ import annotations

import os
import pathlib
import re
import uuid
from typing import NamedTuple

from meshloom.connection import Connection
from meshloom.file_upload import FileUpload, Progress, earlier_uploads
from meshloom.v1 import data_service_pb2


class ImportedFile(NamedTuple):
    """`path` is what a job's data.path takes."""

    path: str
    size_bytes: int
    sha256: str


def import_upload(connection: Connection, file: str | os.PathLike[str], path: str, overwrite: bool,
                  progress: Progress | None) -> ImportedFile:
    request = data_service_pb2.ImportUploadRequest(request_id=str(uuid.uuid4()), path=path, overwrite=overwrite,
                                                   validate_only=True)
    _run(connection, request)  # what is wrong with the path is told before anything is sent
    sent = FileUpload(connection, pathlib.Path(file), progress)
    sent.begin(earlier_uploads(connection), _upload_name(pathlib.PurePath(path).name))
    sent.finish()
    request.upload, request.validate_only = sent.upload.name, False
    made = _run(connection, request)
    sent.forget()
    return ImportedFile(made.path, made.bytes, made.sha256)


def _upload_name(name: str) -> str:
    """A name that uploads take; the data file has the one that was asked for."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name).lstrip(".-")[:128] or "data"


def _run(connection: Connection, request: data_service_pb2.ImportUploadRequest) -> data_service_pb2.ImportedFile:
    result = data_service_pb2.ImportedFile()
    for message in connection.stream(connection.data.ImportUpload, lambda: request):
        if message.HasField("result"):
            result = message.result
    return result
