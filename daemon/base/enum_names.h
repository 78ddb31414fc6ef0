// SPDX-License-Identifier: Apache-2.0
// How enum values are spelled for users: the proto value without its prefix, in lower case.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>
#include <string_view>
#include <vector>

namespace meshloom::base {

/// Turns JOB_STATE_RUNNING into "running".
std::string enum_spelling(const google::protobuf::EnumValueDescriptor& value);
/// Turns "running" into JOB_STATE_RUNNING; null if no value is spelled so, and for "unspecified".
const google::protobuf::EnumValueDescriptor* find_enum_value(
    const google::protobuf::EnumDescriptor& type, std::string_view spelling);
/// Returns what a user may write: "constant", "linear", "cosine", "wsd".
std::vector<std::string> enum_choices(const google::protobuf::EnumDescriptor& type);

}  // namespace meshloom::base
