// SPDX-License-Identifier: Apache-2.0
// What an executor says of ranks that have failed.
#pragma once

#include <string>

#include "daemon/control/ranks/executor.h"

namespace meshloom::control {

class FailedRanks final : public Executor::Observer {
 public:
  void ranks_failed(const Error& cause) override { cause_ = cause.what(); }
  /// Empty: they have not failed.
  const std::string& cause() const { return cause_; }

 private:
  std::string cause_;
};

}  // namespace meshloom::control
