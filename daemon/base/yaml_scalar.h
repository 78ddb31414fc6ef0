// SPDX-License-Identifier: Apache-2.0
// One YAML scalar into one proto field, strictly.
#pragma once

#include <google/protobuf/message.h>

#include <string>

namespace meshloom::base {

struct YamlScalar {
  const std::string& text;
  bool quoted;  ///< a quoted scalar is text, never a number or a boolean
};

/// Sets (or, for a repeated field, appends) the value. Returns what is wrong with it, empty if
/// nothing is.
std::string set_scalar(const YamlScalar& scalar, const google::protobuf::FieldDescriptor& field,
                       google::protobuf::Message* message);

/// Returns "a whole number", "true or false", "one of adamw, adam, sgd", ...
std::string expected_value(const google::protobuf::FieldDescriptor& field);

/// Shortens a text for an error: cut after 60 bytes, control characters replaced.
std::string shorten(const std::string& text);

}  // namespace meshloom::base
