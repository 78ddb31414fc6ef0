// SPDX-License-Identifier: Apache-2.0
// Proto messages as people and programs read them: YAML as config files are spelled, and plain
// JSON.
#pragma once

#include <google/protobuf/message.h>

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace meshloom::base {

/// Prints the fields that are set, in the order of the schema; read_yaml reads it back to an equal
/// message.
std::string to_yaml(const google::protobuf::Message& message);

/// Prints field names as in the schema, numbers as JSON numbers, enum values in lower case without
/// prefix. Fields without presence are always there; messages and optional fields only if set. NaN
/// and infinities become null.
nlohmann::ordered_json to_json(const google::protobuf::Message& message);

}  // namespace meshloom::base
