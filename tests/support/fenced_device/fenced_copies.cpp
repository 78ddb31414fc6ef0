// SPDX-License-Identifier: Apache-2.0
#include <xxhash.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/fenced_device/fenced_backend.h"

namespace meshloom::testing {
namespace {

// Not a number in every floating dtype, so that whoever reads too early sees it.
constexpr std::byte kUnwritten{0xFF};

/// Memory of the host in row-major order. A copy between views of one dtype keeps the bits.
std::vector<std::byte> dense_bytes(const TensorView& host) {
  std::vector<std::byte> bytes(host.bytes());
  kernels::cpu::cpu_backend().copy({}, make_view(bytes.data(), host.dtype, host.shape), host);
  return bytes;
}

XXH64_hash_t hash_of(const TensorView& host) {
  const std::vector<std::byte> bytes = dense_bytes(host);
  return XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace

void FencedBackend::copy(const kernels::KernelContext& context, const TensorView& dst,
                         const TensorView& src) {
  submit(context, "copy", {writes("dst", dst), reads("src", src)},
         [=](auto& cpu, auto& own) { cpu.copy(own, dst, src); });
}

void FencedBackend::fill(const kernels::KernelContext& context, const TensorView& dst,
                         double value) {
  submit(context, "fill", {writes("dst", dst)},
         [=](auto& cpu, auto& own) { cpu.fill(own, dst, value); });
}

void FencedBackend::copy_from_host(const kernels::KernelContext& context, const TensorView& dst,
                                   const TensorView& host) {
  uses_of("copy_from_host", {host_reads("host", host)});
  // The memory may change once this returns: the queue has bytes of its own.
  const auto bytes = std::make_shared<std::vector<std::byte>>(dense_bytes(host));
  const TensorView dense = make_view(bytes->data(), host.dtype, host.shape);
  submit(context, "copy_from_host", {writes("dst", dst)},
         [dst, dense, bytes](auto& cpu, auto& own) { cpu.copy_from_host(own, dst, dense); });
  ++streams_.counts().copies_from_host;
}

void FencedBackend::copy_from_host_async(const kernels::KernelContext& context,
                                         const TensorView& dst, const TensorView& host) {
  check_pinned("copy_from_host_async", host);
  const XXH64_hash_t given = hash_of(host);
  submit(context, "copy_from_host_async", {writes("dst", dst), host_reads("host", host)},
         [=, device = device_](auto& cpu, auto& own) {
           check_internal(hash_of(host) == given,
                          "fenced device {}: copy_from_host_async: host memory was written before "
                          "the copy from it was done",
                          to_string(device));
           cpu.copy_from_host(own, dst, host);
         });
  ++streams_.counts().copies_from_host;
}

void FencedBackend::copy_to_host(const kernels::KernelContext& context, const TensorView& host,
                                 const TensorView& src) {
  submit(context, "copy_to_host", {host_writes("host", host), reads("src", src)},
         [=](auto& cpu, auto& own) { cpu.copy_to_host(own, host, src); });
  ++streams_.counts().copies_to_host;
  ++streams_.counts().waits;
  streams_.wait(streams_.mark(context.stream));
}

void FencedBackend::copy_to_host_async(const kernels::KernelContext& context,
                                       const TensorView& host, const TensorView& src) {
  check_pinned("copy_to_host_async", host);
  submit(context, "copy_to_host_async", {host_writes("host", host), reads("src", src)},
         [=](auto& cpu, auto& own) { cpu.copy_to_host(own, host, src); });
  // Gaps between the elements are not the copy's.
  std::vector<std::byte> unwritten(host.bytes(), kUnwritten);
  kernels::cpu::cpu_backend().copy({}, host, make_view(unwritten.data(), host.dtype, host.shape));
  ++streams_.counts().copies_to_host;
}

}  // namespace meshloom::testing
