// SPDX-License-Identifier: Apache-2.0
// Requests that a daemon refuses, each with the error that it must get.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/e2e/run_client.h"

namespace meshloom::e2e {

struct Refusal {
  std::string name;  ///< of what is wrong, for messages of the test
  grpc::StatusCode code;
  std::string reason, field;  ///< of the error; an empty field is not compared
  std::function<Outcome(RunClient&)> send;
};
using Refusals = std::vector<Refusal>;

/// Sends each by this client and compares what becomes of it.
void expect_refused(RunClient& client, const Refusals& refusals);

}  // namespace meshloom::e2e
