// SPDX-License-Identifier: Apache-2.0
// What an error of a rank means for those who give the ranks commands, as types.
#pragma once

#include <exception>

#include "kernels/base/error.h"
#include "v1/rank_service.pb.h"

namespace meshloom::control {

/// The run or the sample that a command names is not on the ranks, or not any more.
class RunGone : public NotFound {
 public:
  explicit RunGone(const std::string& message, Metadata metadata = {})
      : NotFound(message, "RUN_NOT_FOUND", std::move(metadata)) {}
};

/// What a run holds on the ranks is undefined, since one of them failed alone, or all of them after
/// they had begun to overwrite it, now or before. It has the kind and the reason of that error.
class RunLost : public Error {
 public:
  explicit RunLost(const Error& error) : Error(error) {}
};

/// Whether an error says that what a run held on the ranks is lost: RunGone or RunLost.
bool loses_run(const std::exception_ptr& error);

/// Fills in the error of a result and its scope.
void set_error(const std::exception_ptr& error, v1::RankResult* result);

/// Throws the error of a result: RunGone or RunLost if its scope says so, else an Error of its
/// kind.
[[noreturn]] void throw_error(const v1::RankResult& result);

}  // namespace meshloom::control
