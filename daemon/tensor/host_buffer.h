// SPDX-License-Identifier: Apache-2.0
// HostBuffer: memory of the host that the device copies to or from while the host goes on.
#pragma once

#include <cstddef>
#include <memory>

#include "daemon/tensor/execution_context.h"

namespace meshloom {

/// Takes memory (MemoryKind::kHost) when it is asked for some. Lives no longer than its context.
class HostBuffer {
 public:
  HostBuffer() = default;
  /// Waits for the last copy; if that has failed it is logged.
  ~HostBuffer();
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;

  /// Waits for the last copy. Then there are `bytes` at data(), whose values are undefined.
  void reserve(ExecutionContext& context, std::size_t bytes);
  std::byte* data() const { return memory_ ? memory_->data() : nullptr; }
  /// A copy to or from this memory was just given to the context's stream.
  void mark_copy();
  /// Waits until the last copy is done. Throws what the device has failed with.
  void wait();

 private:
  ExecutionContext* context_ = nullptr;
  std::shared_ptr<Storage> memory_;
  std::unique_ptr<Event> copied_;
};

}  // namespace meshloom
