// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/host_pieces.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace meshloom {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

}  // namespace

void HostPieces::read(const TensorView& view, DType dtype,
                      const std::function<void(std::span<const std::byte>)>& use) {
  check_internal(view.contiguous() && view.device == context_.device(),
                 "host pieces: expected a contiguous view of the context's device");
  const std::int64_t elements = view.numel();
  const auto most = static_cast<std::int64_t>(kPieceBytes / dtype_size(dtype));
  const auto count = [&](std::int64_t at) { return std::min(most, elements - at); };
  const auto bytes = [&](std::int64_t items) {
    return static_cast<std::size_t>(items) * dtype_size(dtype);
  };
  if (view.device == kCpuDevice && view.dtype == dtype) {
    // They are on the host as they are to be.
    const auto* const data = static_cast<const std::byte*>(view.data);
    for (std::int64_t at = 0; at == 0 || at < elements; at += most)
      use({data + bytes(at), bytes(count(at))});
    return;
  }
  const auto buffer = [&](std::int64_t at) -> HostBuffer& {
    return buffers_[static_cast<std::size_t>(at / most % 2)];
  };
  const auto begin_copy = [&](std::int64_t at) {
    if (at >= elements) return;
    std::byte* const from =
        static_cast<std::byte*>(view.data) + at * static_cast<std::int64_t>(dtype_size(view.dtype));
    buffer(at).reserve(context_, kPieceBytes);
    context_.backend().copy_to_host_async(context_.kernel_context(),
                                          make_view(buffer(at).data(), dtype, {count(at)}),
                                          make_view(from, view.dtype, {count(at)}, view.device));
    buffer(at).mark_copy();
  };
  begin_copy(0);
  for (std::int64_t at = 0; at == 0 || at < elements; at += most) {
    begin_copy(at + most);
    buffer(at).wait();
    use({buffer(at).data(), bytes(count(at))});
  }
}

}  // namespace meshloom
