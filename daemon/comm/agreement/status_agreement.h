// SPDX-License-Identifier: Apache-2.0
// Agreement on failure: if one rank fails, all ranks throw its error, so that they stay in step.
#pragma once

#include <exception>
#include <functional>
#include <string>

#include "daemon/comm/process_group.h"

namespace meshloom::comm {

/// Every rank of `group` calls it, with the exception its own work ended with, or null. Returns
/// if all are null; else throws the lowest failing rank's error on every rank, with its kind,
/// reason, message and metadata (and "rank"). An error of a collective (kComm, kDeadlineExceeded,
/// kAborted, GroupBroken) is rethrown at once: the group is poisoned then. So is one of a device
/// that has failed (kDeviceFailed), after which the rank computes no more.
void agree(ProcessGroup& group, const std::exception_ptr& mine);

/// Runs `body` and agrees on how it ended. `body` does no collectives.
void run_agreed(ProcessGroup& group, const std::function<void()>& body);

/// Returns whether it is an error of a collective or of a device that has failed (see agree).
bool ends_the_group(const std::exception_ptr& error);
/// Throws `error` again if it ends the group.
void rethrow_comm_error(const std::exception_ptr& error);

/// Writes an exception (base::as_error) as text that rethrow_encoded() turns back into the same
/// typed error.
std::string encode_error(const std::exception_ptr& error, int rank);
[[noreturn]] void rethrow_encoded(const std::string& text);
/// Throws as rethrow_encoded does an error that one rank of several met: text and metadata
/// ("failed_rank") say which.
[[noreturn]] void rethrow_failed_alone(const std::string& text, int rank);

/// Returns whether one of these threw the error, so that all ranks throw it.
bool is_agreed(const std::exception_ptr& error);
/// Returns whether rethrow_failed_alone() threw it.
bool is_failed_alone(const std::exception_ptr& error);

}  // namespace meshloom::comm
