// SPDX-License-Identifier: Apache-2.0
// RunHolders: which runs a caller holds, for services beside that of runs.
#pragma once

#include <string>

#include "daemon/control/host/hold.h"
#include "daemon/control/net/caller.h"

namespace meshloom::control {

/// Any thread may call any method.
class RunHolders {
 public:
  virtual ~RunHolders() = default;
  /// The resource name of a run of this caller's, for which it may send something. Throws NotFound,
  /// and FailedPrecondition for another's token or a run that has ended.
  virtual std::string own_open_run(const Caller& caller, const std::string& name) const = 0;
  /// The run's lease does not run while the result is held, which holds nothing for a caller
  /// without its token. Throws NotFound, and FailedPrecondition for another's token.
  virtual Hold hold_lease(const Caller& caller, const std::string& name) const = 0;
};

}  // namespace meshloom::control
