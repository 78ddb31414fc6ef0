// SPDX-License-Identifier: Apache-2.0
// GroupDevice: the device whose memory calls of a group may show, and the order of its work.
#pragma once

#include <memory>

#include "kernels/base/device.h"
#include "kernels/base/stream.h"
#include "kernels/base/tensor_view.h"

namespace meshloom::kernels {
class Backend;
}

namespace meshloom::comm {

/// GroupDevice is a device of this rank whose memory calls of a group may show instead of the
/// host's, and the stream that computes there. A call begins behind all that the stream was given
/// before it, and its results are there for all that the stream is given once the call's Work is
/// done.
struct GroupDevice {
  Device device;
  kernels::Backend* backend = nullptr;  ///< of the device; outlives the groups
  std::shared_ptr<OwnedStream> stream;  ///< of the backend
};

/// Makes later work on `stream` wait for all that the device's stream was given so far. The host
/// does not wait.
void order_behind(const GroupDevice& device, const Stream& stream);

/// Copies as many elements of one dtype on the device, both contiguous, unless both are the same
/// memory. The host does not wait.
void copy_on_device(const GroupDevice& device, const TensorView& to, const TensorView& from);

}  // namespace meshloom::comm
