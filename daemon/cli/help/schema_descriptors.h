// SPDX-License-Identifier: Apache-2.0
// The build embeds the protos of config files as protoc has parsed them, comments included.
#pragma once

#include <string_view>

namespace meshloom {

/// Returns a serialised google.protobuf.FileDescriptorSet.
std::string_view schema_descriptors();

}  // namespace meshloom
