// SPDX-License-Identifier: Apache-2.0
// Ids of uploads: "upload-N".
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace meshloom::control {

inline std::string upload_id(std::int64_t number) { return fmt::format("upload-{}", number); }

/// Nothing for an id that upload_id() gives to no number above 0.
inline std::optional<std::int64_t> upload_number(std::string_view id) {
  constexpr std::string_view kPrefix = "upload-";
  if (!id.starts_with(kPrefix)) return std::nullopt;
  std::int64_t number = 0;
  std::from_chars(id.data() + kPrefix.size(), id.data() + id.size(), number);
  if (number < 1 || upload_id(number) != id) return std::nullopt;
  return number;
}

}  // namespace meshloom::control
