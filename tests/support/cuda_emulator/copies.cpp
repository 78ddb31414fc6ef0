// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cuda_emulator/copies.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>
#include <vector>

#include "tests/support/cuda_emulator/access_check.h"

namespace meshloom::emulator {
namespace {

const std::byte* row_of(const void* data, std::size_t pitch, std::size_t row) {
  return static_cast<const std::byte*>(data) + row * pitch;
}

void copy_rows(void* dst, const void* src, const CopyShape& shape) {
  for (std::size_t row = 0; row < shape.rows; ++row)
    std::memcpy(static_cast<std::byte*>(dst) + row * shape.dst_pitch,
                row_of(src, shape.src_pitch, row), shape.width);
}

void check_rows(EmulatedDevice& device, const void* data, std::size_t pitch, const CopyShape& shape,
                Access access) {
  for (std::size_t row = 0; row < shape.rows; ++row)
    check_range(device.memory, device.history, row_of(data, pitch, row), shape.width, access);
}

std::vector<std::uint64_t> digest_rows(const void* data, std::size_t pitch,
                                       const CopyShape& shape) {
  std::vector<std::uint64_t> digests(shape.rows);
  for (std::size_t row = 0; row < shape.rows; ++row)
    digests[row] = digest(row_of(data, pitch, row), shape.width);
  return digests;
}

bool is_pinned(const void* data, std::size_t pitch, const CopyShape& shape) {
  return machine().pinned().contains(data, (shape.rows - 1) * pitch + shape.width);
}

void queue_from_pinned(CUstream_st& stream, void* dst, const void* src, const CopyShape& shape) {
  machine().give(stream, {"a copy from pinned memory"},
                 [=, digests = digest_rows(src, shape.src_pitch, shape)](EmulatedDevice& device) {
                   if (digest_rows(src, shape.src_pitch, shape) != digests)
                     throw FaultError(cudaErrorLaunchFailure,
                                      fmt::format("pinned memory of the host at {} changed before "
                                                  "the copy from it ran",
                                                  src));
                   check_rows(device, dst, shape.dst_pitch, shape, Access::kWrite);
                   copy_rows(dst, src, shape);
                 });
}

void queue_from_pageable(CUstream_st& stream, void* dst, const void* src, const CopyShape& shape) {
  std::vector<std::byte> staged(shape.width * shape.rows);
  const CopyShape dense{shape.width, shape.rows, shape.width, shape.src_pitch};
  copy_rows(staged.data(), src, dense);
  machine().give(
      stream, {"a copy from the host"}, [=, staged = std::move(staged)](EmulatedDevice& device) {
        check_rows(device, dst, shape.dst_pitch, shape, Access::kWrite);
        copy_rows(dst, staged.data(), {shape.width, shape.rows, shape.dst_pitch, shape.width});
      });
}

void queue_to_host(CUstream_st& stream, void* dst, const void* src, const CopyShape& shape) {
  const bool pinned = is_pinned(dst, shape.dst_pitch, shape);
  if (pinned)
    for (std::size_t row = 0; row < shape.rows; ++row)
      std::memset(static_cast<std::byte*>(dst) + row * shape.dst_pitch, 0xff, shape.width);
  machine().give(stream, {"a copy to the host"}, [=](EmulatedDevice& device) {
    check_rows(device, src, shape.src_pitch, shape, Access::kRead);
    copy_rows(dst, src, shape);
  });
  if (!pinned) machine().finish(stream);
}

void check_kind(cudaMemcpyKind kind, bool from_device, bool to_device) {
  const cudaMemcpyKind actual =
      from_device ? (to_device ? cudaMemcpyDeviceToDevice : cudaMemcpyDeviceToHost)
                  : (to_device ? cudaMemcpyHostToDevice : cudaMemcpyHostToHost);
  if (kind != actual && kind != cudaMemcpyDefault)
    throw FaultError(cudaErrorInvalidMemcpyDirection,
                     fmt::format("a copy of kind {} between memory of kind {}",
                                 static_cast<int>(kind), static_cast<int>(actual)));
}

}  // namespace

void queue_copy(CUstream_st& stream, void* dst, const void* src, const CopyShape& shape,
                cudaMemcpyKind kind) {
  const bool from_device = device_of(src) >= 0, to_device = device_of(dst) >= 0;
  check_kind(kind, from_device, to_device);
  if (shape.width == 0 || shape.rows == 0) return;
  if (!from_device && !to_device)
    throw FaultError(cudaErrorInvalidValue, "a copy from the host to the host");
  if (!to_device) return queue_to_host(stream, dst, src, shape);
  if (from_device) {
    machine().give(stream, {"a copy on the device"}, [=](EmulatedDevice& device) {
      check_rows(device, src, shape.src_pitch, shape, Access::kRead);
      check_rows(device, dst, shape.dst_pitch, shape, Access::kWrite);
      copy_rows(dst, src, shape);
    });
  } else if (is_pinned(src, shape.src_pitch, shape)) {
    queue_from_pinned(stream, dst, src, shape);
  } else {
    queue_from_pageable(stream, dst, src, shape);
  }
}

void queue_fill(CUstream_st& stream, void* dst, int value, std::size_t bytes) {
  if (bytes == 0) return;
  machine().give(stream, {"a fill"}, [=](EmulatedDevice& device) {
    check_range(device.memory, device.history, dst, bytes, Access::kWrite);
    std::memset(dst, value, bytes);
  });
}

}  // namespace meshloom::emulator
