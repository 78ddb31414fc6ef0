// SPDX-License-Identifier: Apache-2.0
#include <xxhash.h>

#include <cstring>
#include <memory>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/fenced_device/fenced_backend.h"

namespace meshloom::testing {
namespace {

// Not a number in every floating dtype, so that whoever reads too early sees it.
constexpr int kUnwritten = 0xFF;

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
  const auto bytes = std::make_shared<std::vector<std::byte>>(host.bytes());
  const TensorView dense = make_view(bytes->data(), host.dtype, host.shape);
  kernels::cpu::cpu_backend().copy({context.threads, {}, &streams_.workspace()}, dense, host);
  submit(context, "copy_from_host", {writes("dst", dst)},
         [dst, dense, bytes](auto& cpu, auto& own) { cpu.copy_from_host(own, dst, dense); });
  ++streams_.counts().copies_from_host;
}

void FencedBackend::copy_from_host_async(const kernels::KernelContext& context,
                                         const TensorView& dst, const TensorView& host) {
  check_pinned("copy_from_host_async", host);
  const XXH64_hash_t given = XXH3_64bits(host.data, host.bytes());
  submit(context, "copy_from_host_async", {writes("dst", dst), host_reads("host", host)},
         [=, device = device_](auto& cpu, auto& own) {
           check_internal(XXH3_64bits(host.data, host.bytes()) == given,
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
  if (host.numel() > 0) std::memset(host.data, kUnwritten, host.bytes());
  ++streams_.counts().copies_to_host;
}

}  // namespace meshloom::testing
