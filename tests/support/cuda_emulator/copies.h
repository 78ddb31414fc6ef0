// SPDX-License-Identifier: Apache-2.0
// Copies and fills between memory of the host and of the devices, as work of a stream.
#pragma once

#include <driver_types.h>

#include <cstddef>

#include "tests/support/cuda_emulator/machine.h"

namespace meshloom::emulator {

/// Rows of `width` bytes, `dst_pitch` and `src_pitch` bytes apart.
struct CopyShape {
  std::size_t width = 0;
  std::size_t rows = 1;
  std::size_t dst_pitch = 0;
  std::size_t src_pitch = 0;
};

/// From pinned memory it goes on while the host does, and refuses to run when that memory has
/// changed; to pinned memory too, which holds 0xFF until then. From other memory of the host the
/// bytes are taken at once, and to it the host waits. Throws FaultError.
void queue_copy(CUstream_st& stream, void* dst, const void* src, const CopyShape& shape,
                cudaMemcpyKind kind);
void queue_fill(CUstream_st& stream, void* dst, int value, std::size_t bytes);

}  // namespace meshloom::emulator
