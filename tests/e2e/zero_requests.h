// SPDX-License-Identifier: Apache-2.0
// A 0 in every number of a request that may be left out.
#pragma once

#include <string>

#include "tests/e2e/run_client.h"

namespace meshloom::e2e {

/// Sends each that means nothing as 0 and expects a refusal that names it. `client` has a run that
/// waits. The numbers of a run's config, of plans and of batches have tests of their own.
void send_zeros(const std::string& address, RunClient& client);

}  // namespace meshloom::e2e
