// SPDX-License-Identifier: Apache-2.0
// AccessError: a call that is refused for who makes it.
#pragma once

#include <string>
#include <utility>

#include "kernels/base/error.h"

namespace meshloom::control {

/// Clients hear PERMISSION_DENIED, or UNAUTHENTICATED where nobody was proven; no other error gives
/// these codes.
class AccessError : public FailedPrecondition {
 public:
  /// Nobody was proven to call.
  static AccessError unauthenticated(const std::string& message) {
    return {true, message, "UNAUTHENTICATED", {}};
  }
  static AccessError denied(const std::string& message, std::string reason, Metadata metadata) {
    return {false, message, std::move(reason), std::move(metadata)};
  }
  bool is_unauthenticated() const { return unauthenticated_; }

 private:
  AccessError(bool unauthenticated, const std::string& message, std::string reason,
              Metadata metadata)
      : FailedPrecondition(message, std::move(reason), std::move(metadata)),
        unauthenticated_(unauthenticated) {}

  bool unauthenticated_;
};

}  // namespace meshloom::control
