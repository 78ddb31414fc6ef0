// SPDX-License-Identifier: Apache-2.0
// What an evaluation is refused for, in the words of its request: its run is resolved as a job is,
// by a config that nobody gave.
#pragma once

#include <utility>

#include "kernels/base/error.h"
#include "v1/evaluate_service.pb.h"

namespace meshloom::control {

/// The error with the fields of the request in its text and metadata in place of those of a
/// RunConfig ("run.training.seq_len"): of the model, that which names it.
Error in_terms_of(const v1::EvaluateRequest& request, const Error& error);

/// What `body` throws is thrown in terms of the request.
template <typename Body>
auto in_request_terms(const v1::EvaluateRequest& request, Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const Error& error) {
    throw in_terms_of(request, error);
  }
}

}  // namespace meshloom::control
