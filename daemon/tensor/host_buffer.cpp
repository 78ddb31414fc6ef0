// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/host_buffer.h"

#include <exception>

#include "kernels/base/log.h"

namespace meshloom {

HostBuffer::~HostBuffer() {
  try {
    wait();
  } catch (const std::exception& error) {
    spdlog::error("a copy between host and device failed: {}", error.what());
  }
}

void HostBuffer::reserve(ExecutionContext& context, std::size_t bytes) {
  wait();
  context_ = &context;
  if (!copied_) copied_ = context.backend().make_event();
  if (memory_ && memory_->bytes() >= bytes) return;
  memory_.reset();
  memory_ = context.allocator(MemoryKind::kHost).allocate(bytes);
}

void HostBuffer::mark_copy() { copied_->record(context_->kernel_context().stream); }

void HostBuffer::wait() {
  if (copied_) copied_->wait();
}

}  // namespace meshloom
