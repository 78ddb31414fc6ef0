// SPDX-License-Identifier: Apache-2.0
#include "daemon/dtensor/boxes.h"

namespace meshloom::dtensor {
namespace {

TensorView window(const TensorView& view, const Dims& first, const Shape& size) {
  std::int64_t offset = 0;
  for (int d = 0; d < size.size(); ++d) offset += first[d] * view.strides[d];
  TensorView part = view;
  part.data = view.as<std::byte>() + offset * static_cast<std::int64_t>(dtype_size(view.dtype));
  part.shape = size;
  return part;
}

/// Calls fn(box, packed block) for all boxes.
template <typename Fn>
void for_each_packed(const Boxes& boxes, const TensorView& like, void* packed, Fn&& fn) {
  auto* at = static_cast<std::byte*>(packed);
  for (const Box& box : boxes) {
    const TensorView block = make_view(at, like.dtype, box.size, like.device);
    fn(box, block);
    at += block.bytes();
  }
}

}  // namespace

void copy_boxes(const kernels::KernelContext& context, kernels::Backend& backend,
                const Boxes& boxes, const TensorView& to, const TensorView& from) {
  for (const Box& box : boxes)
    backend.copy(context, window(to, box.to, box.size), window(from, box.from, box.size));
}

void pack_boxes(const kernels::KernelContext& context, kernels::Backend& backend,
                const Boxes& boxes, void* packed, const TensorView& from) {
  for_each_packed(boxes, from, packed, [&](const Box& box, const TensorView& block) {
    backend.copy(context, block, window(from, box.from, box.size));
  });
}

void unpack_boxes(const kernels::KernelContext& context, kernels::Backend& backend,
                  const Boxes& boxes, const TensorView& to, void* packed) {
  for_each_packed(boxes, to, packed, [&](const Box& box, const TensorView& block) {
    backend.copy(context, window(to, box.to, box.size), block);
  });
}

}  // namespace meshloom::dtensor
