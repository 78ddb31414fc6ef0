// SPDX-License-Identifier: Apache-2.0
// Formatting of types that have a to_string.
#pragma once

#include <fmt/format.h>

#include <string>

namespace meshloom {

/// It is the base of a type's fmt::formatter. Arguments of check() that are formatted so become
/// text only where it throws, while to_string among them makes a string at every call.
template <typename T>
struct ToStringFormatter : fmt::formatter<std::string> {
  template <typename Context>
  auto format(const T& value, Context& context) const {
    return fmt::formatter<std::string>::format(to_string(value), context);
  }
};

}  // namespace meshloom
