// SPDX-License-Identifier: Apache-2.0
// Which field of a request says what its model is.
#pragma once

namespace meshloom::control {

/// Returns the name of the field of the request's source that is given; "model" if none is.
template <typename Request>
const char* source_field(const Request& request) {
  if (request.has_job()) return "job";
  if (request.has_checkpoint()) return "checkpoint";
  return request.has_hf_folder() ? "hf_folder" : "model";
}

}  // namespace meshloom::control
