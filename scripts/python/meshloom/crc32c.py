# SPDX-License-Identifier: Apache-2.0
"""CRC32C, which every chunk of an upload carries, by numpy alone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_ROW = 256

Words = npt.NDArray[np.uint32]


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
