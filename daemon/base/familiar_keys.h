// SPDX-License-Identifier: Apache-2.0
// What people write in a job because another trainer calls it so.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>
#include <string_view>
#include <vector>

namespace meshloom::base {

/// Returns what to write instead of a key that a config of type `root` does not have at the place
/// where it was given: "here it is run.optimizer.lr" for "learning_rate" and for an "lr" at a wrong
/// place, perhaps followed by how its value is told; that only jobs have it, where `root` is a
/// run's. Dashes count as underscores and letters as lower case ones. Empty for a key of which
/// nothing is known, and for names of other trainers where `root` has no run.
std::string familiar_key(std::string_view key, const google::protobuf::Descriptor& root);

/// Returns the fields that such a key may mean, as paths below `root`: "run.optimizer.lr". None for
/// a key of which nothing is known, or which means too many to say anything.
std::vector<std::string> familiar_fields(std::string_view key,
                                         const google::protobuf::Descriptor& root);

}  // namespace meshloom::base
