// SPDX-License-Identifier: Apache-2.0
// Names of objects that somebody is not to see, taken out of answers and texts: who waits for the
// ranks sees places, and names of its own alone.
#pragma once

#include <google/protobuf/message.h>

#include <functional>
#include <string>

namespace meshloom::control {

/// Of a resource, such as "jobs/NAME" or "runs/NAME".
using MaySee = std::function<bool(const std::string& resource)>;

/// "behind jobs/a, then runs/b" becomes "behind another's job, then runs/b".
std::string without_names_of_others(const std::string& text, const MaySee& may_see);

/// In all that an answer says of the queue for the ranks (RanksWait, Run.ahead,
/// Operation.waits_for,
/// ...) and of what keeps a model or a plan.
void hide_others(google::protobuf::Message* answer, const MaySee& may_see);

}  // namespace meshloom::control
