// SPDX-License-Identifier: Apache-2.0
// Cuts one workspace span into pieces, and lends the rest to an inner kernel call.
#pragma once

#include "kernels/backend.h"
#include "kernels/base/error.h"

namespace meshloom::kernels::cpu {

/// Returns the bytes rounded up to whole cache lines: what one piece takes of a workspace.
template <typename T>
constexpr std::size_t piece_bytes(std::int64_t count) {
  return (static_cast<std::size_t>(count) * sizeof(T) + 63) / 64 * 64;
}

/// Takes `bytes` from the context's workspace. Throws InternalError where the caller gave none.
inline std::span<std::byte> reserve_workspace(const KernelContext& context, std::size_t bytes,
                                              const char* op) {
  if (bytes == 0) return {};
  check_internal(context.workspace != nullptr, "{}: needs a workspace of {} bytes, none was given",
                 op, bytes);
  return context.workspace->reserve(bytes);
}

/// Hands out consecutive aligned pieces of a span; piece sizes add up as piece_bytes says.
class SpanCutter {
 public:
  explicit SpanCutter(std::span<std::byte> span) : rest_(span) {}

  template <typename T>
  T* take(std::int64_t count) {
    const std::size_t bytes = piece_bytes<T>(count);
    check_internal(bytes <= rest_.size(), "workspace: {} bytes asked, {} left", bytes,
                   rest_.size());
    T* piece = reinterpret_cast<T*>(rest_.data());
    rest_ = rest_.subspan(bytes);
    return piece;
  }
  std::span<std::byte> rest() const { return rest_; }

 private:
  std::span<std::byte> rest_;
};

/// SpanWorkspace is a fixed span as the workspace of an inner call.
class SpanWorkspace final : public Workspace {
 public:
  explicit SpanWorkspace(std::span<std::byte> span) : span_(span) {}

  std::span<std::byte> reserve(std::size_t bytes) override {
    check_internal(bytes <= span_.size(), "workspace: {} bytes asked of an inner call's {}", bytes,
                   span_.size());
    return span_.first(bytes);
  }

 private:
  std::span<std::byte> span_;
};

}  // namespace meshloom::kernels::cpu
