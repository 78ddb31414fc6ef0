// SPDX-License-Identifier: Apache-2.0
// HostPieces: the elements of tensors on the host, for files.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <span>

#include "daemon/tensor/execution_context.h"
#include "daemon/tensor/host_buffer.h"

namespace meshloom {

/// Copies a tensor piece by piece to memory of the host, where each piece fits into the cache: the
/// device copies the next one while the host uses the one before. What is there already is used
/// where it is. Lives no longer than its context.
class HostPieces {
 public:
  /// The end of it waits for copies that nobody used.
  explicit HostPieces(ExecutionContext& context) : context_(context) {}
  HostPieces(const HostPieces&) = delete;
  HostPieces& operator=(const HostPieces&) = delete;

  /// Calls `use` with all elements of `view` (of the context's device, contiguous) as `dtype`, in
  /// order and in pieces, each of which is valid until `use` returns; an empty piece if there are
  /// none. Passes on what `use` throws.
  void read(const TensorView& view, DType dtype,
            const std::function<void(std::span<const std::byte>)>& use);

 private:
  ExecutionContext& context_;
  std::array<HostBuffer, 2> buffers_;
};

}  // namespace meshloom
