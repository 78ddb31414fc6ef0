# SPDX-License-Identifier: Apache-2.0
"""Transient uploads: what a verb takes that is too large for a request."""

from __future__ import annotations

import time
import uuid
from typing import Any, Iterator

import numpy as np
import numpy.typing as npt

from meshloom import errors
from meshloom.connection import Connection
from meshloom.v1 import step_pb2, upload_service_pb2

LARGEST_REQUEST = 12 << 20  #: bytes; a larger verb's data travel as an upload
_CHUNK = 1 << 20
_ROW = 256

Words = npt.NDArray[np.uint32]


def shrink(connection: Connection, request: Any, run: str, token: str) -> Any:
    """The request, or where it is too large one that names an upload with its data."""
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
    small.upload = _send(connection, data, run, token)
    return small


def _send(connection: Connection, data: bytes, run: str, token: str) -> str:
    request = upload_service_pb2.CreateUploadRequest(request_id=str(uuid.uuid4()), size_bytes=len(data), run=run,
                                                     kind=upload_service_pb2.UPLOAD_KIND_TRANSIENT)
    upload = connection.call(connection.uploads.CreateUpload, request, token).upload
    end = time.monotonic() + connection.retry_seconds
    at = upload.committed_bytes
    while at < len(data):
        try:
            chunks = _chunks(upload.name, data, at)
            at = connection.send_stream(connection.uploads.WriteUpload, chunks).committed_bytes
        except errors.Unavailable:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
            get = upload_service_pb2.GetUploadRequest(name=upload.name)
            at = connection.call(connection.uploads.GetUpload, get).upload.committed_bytes
    finish = upload_service_pb2.FinishUploadRequest(name=upload.name)
    return connection.call(connection.uploads.FinishUpload, finish).upload.name


def _chunks(name: str, data: bytes, begin: int) -> Iterator[upload_service_pb2.WriteUploadRequest]:
    for at in range(begin, len(data), _CHUNK):
        piece = data[at:at + _CHUNK]
        yield upload_service_pb2.WriteUploadRequest(upload=name, write_offset=at, data=piece, crc32c=crc32c(piece))


def _make_table() -> Words:
    values = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        values = np.where(values & 1, np.uint32(0x82F63B78) ^ (values >> np.uint32(1)), values >> np.uint32(1))
    return values.astype(np.uint32)


_TABLE = _make_table()


def _behind_a_zero(sums: Words) -> Words:
    return _TABLE[sums & np.uint32(0xFF)] ^ (sums >> np.uint32(8))


def _apply(columns: Words, sums: Words) -> Words:
    """A linear map of 32 bits, given by what becomes of each bit."""
    result = np.zeros_like(sums)
    for bit in range(32):
        result ^= np.where((sums >> np.uint32(bit)) & np.uint32(1), columns[bit], np.uint32(0))
    return result


def _make_shifts() -> list[Words]:
    """Number k: what 2**k zero bytes make of a checksum."""
    shifts = [_behind_a_zero(np.uint32(1) << np.arange(32, dtype=np.uint32))]
    for _ in range(32):
        shifts.append(_apply(shifts[-1], shifts[-1]))
    return shifts


_SHIFTS = _make_shifts()


def crc32c(data: bytes) -> int:
    """CRC32C (Castagnoli). Rows of the bytes are summed side by side and then joined pair by pair: a checksum that
    begins with 0 is linear, and zeros in front leave it as it is."""
    size = len(data)
    level = max(0, (size - 1) // _ROW).bit_length()
    rows = np.zeros((1 << level, _ROW), np.uint8)
    rows.reshape(-1)[rows.size - size:] = np.frombuffer(data, np.uint8)
    sums: Words = np.zeros(len(rows), np.uint32)
    for column in rows.T.astype(np.uint32):
        sums = _TABLE[(sums ^ column) & np.uint32(0xFF)] ^ (sums >> np.uint32(8))
    shift = _ROW.bit_length() - 1
    while len(sums) > 1:
        sums = _apply(_SHIFTS[shift], sums[0::2]) ^ sums[1::2]
        shift += 1
    first = np.array([0xFFFFFFFF], np.uint32)
    for bit in range(size.bit_length()):
        if size >> bit & 1:
            first = _apply(_SHIFTS[bit], first)
    return int((sums ^ first)[0]) ^ 0xFFFFFFFF
