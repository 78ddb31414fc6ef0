// SPDX-License-Identifier: Apache-2.0
// Labels that clients give to jobs.
#pragma once

#include <google/protobuf/map.h>

#include <string>

namespace meshloom::control {

using LabelMap = google::protobuf::Map<std::string, std::string>;

/// Throws InvalidArgument naming the field ("FIELD[KEY]") of a label that is not as job.proto says,
/// and for more than 64.
void check_labels(const LabelMap& labels, const std::string& field);

/// Whether `labels` has all of `wanted`.
bool has_labels(const LabelMap& labels, const LabelMap& wanted);

}  // namespace meshloom::control
