// SPDX-License-Identifier: Apache-2.0
// The protos of config files as protoc has parsed them, comments included. Made by the build.
#pragma once

#include <string_view>

namespace meshloom {

/// A serialised google.protobuf.FileDescriptorSet.
std::string_view schema_descriptors();

}  // namespace meshloom
