// SPDX-License-Identifier: Apache-2.0
// Messages as a checkpoint's manifest holds them.
#pragma once

#include <string>

#include "v1/job.pb.h"

namespace meshloom::train {

/// Writes JSON with the names of the fields as in the .proto.
std::string message_to_json(const google::protobuf::Message& message);
/// Reads what message_to_json writes; keys that are not known are left out. Returns what is wrong
/// with the text; empty if nothing is.
std::string message_from_json(const std::string& text, google::protobuf::Message* message);

/// Returns what a manifest holds of validations; empty for a progress that says nothing.
std::string validation_progress_to_json(const v1::ValidationProgress& progress);
/// Reads what validation_progress_to_json writes. Throws DataLoss for what is none.
v1::ValidationProgress validation_progress_from_json(const std::string& text);

}  // namespace meshloom::train
