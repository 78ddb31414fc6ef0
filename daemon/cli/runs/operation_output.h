// SPDX-License-Identifier: Apache-2.0
// The client shows runs that are driven step by step, and the operations of their verbs.
#pragma once

#include <string>

#include "daemon/cli/client.h"
#include "v1/run.pb.h"

namespace meshloom::cli {

std::string state_name(v1::RunState state);          ///< "ready"
std::string state_name(v1::OperationState state);    ///< "succeeded"
std::string state_name(v1::WeightsStorage storage);  ///< "disk"

/// Throws CliError with the operation's error if it has failed or was cancelled.
void check_succeeded(const v1::Operation& operation);

/// Prints an operation in full, its result included; of bulk results (log-probs, parameters) what
/// they are.
void print_operation(const v1::Operation& operation);

/// Reads the result of an operation where it is too large to be told along, with its progress
/// unless `quiet`.
void complete_result(Client& client, bool quiet, v1::Operation* operation);

/// Waits until an operation has ended, and has its result whole. Throws CliError with its error if
/// it has failed or was cancelled.
v1::Operation wait_for_operation(Client& client, bool quiet, const std::string& name);

}  // namespace meshloom::cli
