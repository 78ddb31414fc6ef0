// SPDX-License-Identifier: Apache-2.0
// Cuts a call's workspace into pieces of device memory.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/backend.h"
#include "kernels/base/error.h"
#include "kernels/base/integer_math.h"

namespace meshloom::kernels::cuda {

/// What libraries want their workspaces aligned to.
inline constexpr std::size_t kScratchAlignment = 256;

constexpr std::size_t scratch_piece(std::size_t bytes) {
  return round_up(bytes, kScratchAlignment);
}

/// Reserves room for pieces whose scratch_piece sizes sum up to `bytes`, aligned to
/// kScratchAlignment. Throws InternalError where the caller gave no workspace.
inline std::span<std::byte> reserve_scratch(const KernelContext& context, std::size_t bytes,
                                            const char* call) {
  if (bytes == 0) return {};
  check_internal(context.workspace != nullptr, "{}: needs a workspace of {} bytes, none was given",
                 call, bytes);
  const std::span<std::byte> span = context.workspace->reserve(bytes + kScratchAlignment);
  const auto address = reinterpret_cast<std::uintptr_t>(span.data());
  return span.subspan(round_up(address, std::uintptr_t{kScratchAlignment}) - address, bytes);
}

/// Hands out consecutive pieces, each aligned to kScratchAlignment if the first is. Counts from a
/// null base as well, to plan.
class ScratchCutter {
 public:
  explicit ScratchCutter(std::byte* base) : next_(reinterpret_cast<std::uintptr_t>(base)) {}

  void* take(std::size_t bytes) {
    const std::uintptr_t piece = next_;
    next_ += scratch_piece(bytes);
    return reinterpret_cast<void*>(piece);
  }

 private:
  std::uintptr_t next_;
};

}  // namespace meshloom::kernels::cuda
