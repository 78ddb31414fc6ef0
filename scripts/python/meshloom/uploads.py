# SPDX-License-Identifier: Apache-2.0
"""Uploads: bytes for the daemon in checked pieces, sent on from what it has after a break."""

from __future__ import annotations

import time
import uuid
from typing import Any, Callable, Iterator

from meshloom import errors
from meshloom.connection import Connection
from meshloom.crc32c import crc32c
from meshloom.v1 import step_pb2, upload_service_pb2

LARGEST_REQUEST = 12 << 20  #: bytes; a larger verb's data travel as an upload
CHUNK = 1 << 20  #: bytes, the most that the daemon takes at once
_FINISH_SECONDS = 3600.0  # the daemon may have to read all of it again

# What passes by itself: the stream before has not been given up there yet, or a piece was damaged on the way.
_PASSING = ("UPLOAD_BUSY", "WRONG_OFFSET", "CHUNK_CHECKSUM_MISMATCH")

Reader = Callable[[int, int], bytes]  #: of offset and size; called from threads of gRPC


def shrink(connection: Connection, request: Any, run: str, token: str) -> Any:
    """The request, or where it is too large one that names a transient upload with its data."""
    if request.ByteSize() <= LARGEST_REQUEST or "upload" not in request.DESCRIPTOR.fields_by_name:
        return request
    small = type(request)()
    small.CopyFrom(request)
    if "batch" in request.DESCRIPTOR.fields_by_name:
        data = request.batch.SerializeToString()
        small.ClearField("batch")
    else:
        data = step_pb2.ParameterValues(parameters=request.parameters).SerializeToString()
        small.ClearField("parameters")
    small.upload = _send_transient(connection, data, run, token)
    return small


def _send_transient(connection: Connection, data: bytes, run: str, token: str) -> str:
    request = upload_service_pb2.CreateUploadRequest(request_id=str(uuid.uuid4()), size_bytes=len(data), run=run,
                                                     kind=upload_service_pb2.UPLOAD_KIND_TRANSIENT)
    upload = connection.call(connection.uploads.CreateUpload, request, token).upload
    send(connection, upload, lambda offset, size: data[offset:offset + size], len(data), token)
    return finish(connection, upload.name, token).name


def send(connection: Connection, upload: upload_service_pb2.Upload, read: Reader, end: int,
         token: str = "") -> upload_service_pb2.Upload:
    """Sends the bytes up to `end` from where the upload is committed, and returns it as it is then. Goes on after a
    break, until nothing new has arrived for retry_seconds. What `read` raises comes out."""
    moved = time.monotonic()
    while upload.committed_bytes < end:
        failed: list[Exception] = []
        refused: errors.MeshloomError | None = None
        try:
            connection.send_stream(connection.uploads.WriteUpload,
                                   _chunks(upload.name, read, upload.committed_bytes, end, failed), token)
        except errors.MeshloomError as error:
            refused = error
        if failed:
            raise failed[0]
        if refused and not isinstance(refused, errors.Unavailable) and refused.reason not in _PASSING:
            raise refused
        request = upload_service_pb2.GetUploadRequest(name=upload.name)
        now_there = connection.call(connection.uploads.GetUpload, request, token).upload
        if now_there.committed_bytes > upload.committed_bytes:
            moved = time.monotonic()
        elif time.monotonic() > moved + connection.retry_seconds:
            raise refused or errors.MeshloomError(f"{upload.name}: the daemon takes nothing behind byte "
                                                  f"{upload.committed_bytes}")
        elif now_there.committed_bytes < end:
            time.sleep(0.1)
        upload = now_there
    return upload


def finish(connection: Connection, name: str, token: str = "") -> upload_service_pb2.Upload:
    """The upload once the daemon has compared size and digest."""
    request = upload_service_pb2.FinishUploadRequest(name=name)
    end = time.monotonic() + _FINISH_SECONDS
    while True:
        try:
            return connection.call(connection.uploads.FinishUpload, request, token, seconds=_FINISH_SECONDS).upload
        except errors.Aborted as error:
            # A call whose connection broke still reads it.
            if error.reason != "UPLOAD_BUSY" or time.monotonic() > end:
                raise
        time.sleep(0.5)


def _chunks(name: str, read: Reader, begin: int, end: int,
            failed: list[Exception]) -> Iterator[upload_service_pb2.WriteUploadRequest]:
    # gRPC would tell of an exception in here as of a broken call.
    try:
        for at in range(begin, end, CHUNK):
            piece = read(at, min(CHUNK, end - at))
            yield upload_service_pb2.WriteUploadRequest(upload=name, write_offset=at, data=piece, crc32c=crc32c(piece))
    except Exception as error:
        failed.append(error)
