// SPDX-License-Identifier: Apache-2.0
// Copy, cast and fill of strided views, and copies between host and device: calls of Backend on
// CUDA. Between the two only dense bytes of the host's dtype move; the device converts them and
// puts them into place.
#include <array>
#include <cstring>
#include <span>

#include "kernels/cuda/copy_launch.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/host_views.h"
#include "kernels/cuda/runtime/call_log.h"
#include "kernels/cuda/runtime/check.h"
#include "kernels/cuda/runtime/pinned_ring.h"
#include "kernels/cuda/scratch.h"

namespace meshloom::kernels::cuda {
namespace {

/// Calls `body(data, bytes)` for the pieces of a view that lie together, in row-major order. There
/// is at least one element.
template <class Body>
void for_each_run(const TensorView& view, Body&& body) {
  const auto size = static_cast<std::int64_t>(dtype_size(view.dtype));
  std::int64_t run = 1;
  int outer = view.ndim();
  for (; outer > 0; --outer) {
    if (view.size(outer - 1) == 1) continue;
    if (view.stride(outer - 1) != run) break;
    run *= view.size(outer - 1);
  }
  std::array<std::int64_t, kMaxDims> place{};
  std::int64_t offset = 0;
  for (int dim = 0; dim >= 0;) {
    body(view.as<std::byte>() + offset * size, static_cast<std::size_t>(run * size));
    for (dim = outer - 1; dim >= 0; --dim) {
      offset += view.stride(dim);
      if (++place[static_cast<std::size_t>(dim)] < view.size(dim)) break;
      offset -= view.stride(dim) * view.size(dim);
      place[static_cast<std::size_t>(dim)] = 0;
    }
  }
}

/// Dense elements of the host's dtype on the device: the view's own memory where it is like that,
/// else scratch memory.
TensorView dense_on_device(const KernelContext& context, const TensorView& view,
                           const TensorView& host) {
  if (view.dtype == host.dtype && view.contiguous()) return view;
  std::byte* const scratch =
      reserve_scratch(context, host.bytes(), "copy between host and device").data();
  return make_view(scratch, host.dtype, view.shape, view.device);
}

void put_into_place(const TensorView& dst, const TensorView& dense, cudaStream_t stream) {
  if (dense.data != dst.data) launch_copy(device_view(dst), device_view(dense), stream);
}

void download(const KernelContext& context, const TensorView& host, const TensorView& src) {
  const cudaStream_t stream = stream_of(context);
  const TensorView dense = dense_on_device(context, src, host);
  if (dense.data != src.data) launch_copy(device_view(dense), device_view(src), stream);
  const std::byte* from = dense.as<const std::byte>();
  for_each_run(host, [&](std::byte* to, std::size_t bytes) {
    call_log().add("copy to host");
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream), "copy to host");
    from += bytes;
  });
}

}  // namespace

void CudaBackend::copy(const KernelContext& context, const TensorView& dst, const TensorView& src) {
  if (dst.numel() == 0) return;
  launch_copy(device_view(dst), device_view(src), stream_of(context));
}

void CudaBackend::fill(const KernelContext& context, const TensorView& dst, double value) {
  if (dst.numel() == 0) return;
  launch_fill(device_view(dst), value, stream_of(context));
}

void CudaBackend::copy_from_host(const KernelContext& context, const TensorView& dst,
                                 const TensorView& host) {
  if (dst.numel() == 0) return;
  const cudaStream_t stream = stream_of(context);
  const TensorView dense = dense_on_device(context, dst, host);
  PinnedRing& ring = ring_of(context.stream);
  auto* to = dense.as<std::byte>();
  for_each_run(host, [&](const std::byte* from, std::size_t bytes) {
    while (bytes > 0) {
      const std::span<std::byte> part = ring.take(bytes);
      std::memcpy(part.data(), from, part.size());
      call_log().add("copy from host");
      check(cudaMemcpyAsync(to, part.data(), part.size(), cudaMemcpyHostToDevice, stream),
            "copy from host");
      from += part.size();
      to += part.size();
      bytes -= part.size();
    }
  });
  put_into_place(dst, dense, stream);
}

void CudaBackend::copy_from_host_async(const KernelContext& context, const TensorView& dst,
                                       const TensorView& host) {
  if (dst.numel() == 0) return;
  const cudaStream_t stream = stream_of(context);
  const TensorView dense = dense_on_device(context, dst, host);
  auto* to = dense.as<std::byte>();
  for_each_run(host, [&](const std::byte* from, std::size_t bytes) {
    call_log().add("copy from host");
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream), "copy from host");
    to += bytes;
  });
  put_into_place(dst, dense, stream);
}

void CudaBackend::copy_to_host(const KernelContext& context, const TensorView& host,
                               const TensorView& src) {
  if (src.numel() > 0) download(context, host, src);
  wait_for(context.stream, "copy to host");
}

void CudaBackend::copy_to_host_async(const KernelContext& context, const TensorView& host,
                                     const TensorView& src) {
  if (src.numel() > 0) download(context, host, src);
}

}  // namespace meshloom::kernels::cuda
