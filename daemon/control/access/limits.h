// SPDX-License-Identifier: Apache-2.0
// The one table of how much one owner, and all together, may have at a time.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "v1/config.pb.h"

namespace meshloom::control {

enum class LimitKind { kJobs, kRuns, kResultBytes, kTransientUploads, kDiskBytes };
inline constexpr std::size_t kLimitKinds = 5;

/// One of DaemonConfig.limits: its fields are "owner_" and "total_" before the name.
struct LimitRow {
  LimitKind kind;
  const char* name;
  const char* unit;
  std::int64_t owner, total;  ///< defaults
  const char* reason;         ///< of the error that refuses more
  const char* what;           ///< of it is taken
  const char* remedy;
};
inline constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();
/// In the order of the kinds.
std::span<const LimitRow> limit_rows();

/// What is not given gets its default. Throws InvalidArgument for negative limits.
v1::LimitConfig with_limit_defaults(v1::LimitConfig limits);

/// A value.
class Limits {
 public:
  Limits() : Limits(v1::LimitConfig()) {}
  explicit Limits(const v1::LimitConfig& limits);

  std::int64_t of_owner(LimitKind kind) const { return owner_[static_cast<std::size_t>(kind)]; }
  std::int64_t of_all(LimitKind kind) const { return total_[static_cast<std::size_t>(kind)]; }
  std::int64_t max_running_seconds() const { return max_running_seconds_; }  ///< 0: for ever

  struct Taken {
    std::int64_t own = 0;  ///< by the owner that asks
    std::int64_t all = 0;
  };
  /// `owner`: for whom `asked` more are wanted; empty: the admins, for whom what all may have
  /// counts alone. Throws ResourceExhausted with the row's reason, which names the limit.
  void check(LimitKind kind, const std::string& owner, const Taken& taken,
             std::int64_t asked = 1) const;

 private:
  std::array<std::int64_t, kLimitKinds> owner_{}, total_{};
  std::int64_t max_running_seconds_ = 0;
};

}  // namespace meshloom::control
