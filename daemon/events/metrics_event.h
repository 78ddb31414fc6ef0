// SPDX-License-Identifier: Apache-2.0
// What a line of metrics.jsonl is as an event: the one place that names what TensorBoard shows.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "daemon/events/event_file.pb.h"

namespace meshloom::events {

/// The scalars of a line of a step or of a validation, as base::MetricsLog writes it, in float32;
/// nothing for another line. A loss or a norm that is null is NaN or the infinity that the line's
/// "not_finite" says; other values that are null are not known, and left out.
std::optional<Event> metrics_event(const nlohmann::ordered_json& line);

/// The same of the text of a line; nothing for what is no JSON.
std::optional<Event> metrics_event(const std::string& line);

/// Whether the event is of a validation, of which there is one for each step at most, beside the
/// step's own.
bool is_validation(const Event& event);

}  // namespace meshloom::events
