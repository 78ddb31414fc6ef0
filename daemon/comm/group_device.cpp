// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/group_device.h"

#include "kernels/backend.h"

namespace meshloom::comm {

void order_behind(const GroupDevice& device, const Stream& stream) {
  if (stream == device.stream->get()) return;
  const auto mark = device.backend->make_event();
  mark->record(device.stream->get());
  device.backend->wait_event(stream, *mark);
}

void copy_on_device(const GroupDevice& device, const TensorView& to, const TensorView& from) {
  if (to.data == from.data || from.numel() == 0) return;
  const auto flat = [](const TensorView& view) {
    return make_view(view.data, view.dtype, {view.numel()}, view.device);
  };
  device.backend->copy({{}, device.stream->get(), nullptr}, flat(to), flat(from));
}

}  // namespace meshloom::comm
