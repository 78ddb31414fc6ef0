// SPDX-License-Identifier: Apache-2.0
// Somebody who is woken, for tests: calls what the test gives.
#pragma once

#include <memory>
#include <utility>

#include "daemon/control/host/wakeable.h"

namespace meshloom::control {

template <typename Call>
class WokenCall final : public Wakeable {
 public:
  explicit WokenCall(Call call) : call_(std::move(call)) {}
  void wake() override { call_(); }

 private:
  Call call_;
};

/// Calls `call` each time it is woken, as long as the test keeps it.
template <typename Call>
std::shared_ptr<Wakeable> when_woken(Call call) {
  return std::make_shared<WokenCall<Call>>(std::move(call));
}

}  // namespace meshloom::control
