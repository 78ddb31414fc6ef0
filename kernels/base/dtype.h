// SPDX-License-Identifier: Apache-2.0
// Element types: ids, sizes and their three spellings (user, safetensors, config.json).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace meshloom {

enum class DType : std::uint8_t {
  kFloat32,
  kBFloat16,
  kFloat16,
  kFloat64,
  kInt64,
  kInt32,
  kUInt8,
  kBool,
  kFloat8E4M3,  ///< for storage: copied and converted only
  kFloat8E5M2,  ///< likewise
};

/// Returns the bytes per element.
std::size_t dtype_size(DType dtype);
/// Returns the spelling users type: "float32", "bfloat16", ...
const char* dtype_name(DType dtype);
/// Returns the spelling inside safetensors headers: "F32", "BF16", ...
const char* dtype_safetensors_name(DType dtype);

std::optional<DType> dtype_from_name(std::string_view name);
std::optional<DType> dtype_from_safetensors_name(std::string_view name);

bool dtype_is_floating(DType dtype);

}  // namespace meshloom
