// SPDX-License-Identifier: Apache-2.0
// Streams and events of CUDA as those of the backend.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "kernels/base/stream.h"

namespace meshloom::kernels::cuda {

class PinnedRing;

/// Makes a stream of device `index`, which does not wait for the default stream.
std::shared_ptr<OwnedStream> make_device_stream(int index);

/// The stream as CUDA's runtime knows it. Makes its device the calling thread's, so that what
/// follows goes there. Throws InternalError for a stream without a handle.
cudaStream_t use_stream(const Stream& stream);

/// Waits for all work of the stream, for `what`, and throws what it threw.
void wait_for(const Stream& stream, const char* what);

/// What uploads to the stream go through. It belongs to the stream.
PinnedRing& ring_of(const Stream& stream);

/// Makes an event of device `index`.
std::unique_ptr<Event> make_device_event(int index);

/// The work of `stream` that follows waits for the event's mark.
void order_behind_event(const Stream& stream, Event& event);

}  // namespace meshloom::kernels::cuda
