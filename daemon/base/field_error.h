// SPDX-License-Identifier: Apache-2.0
// Errors about one field of a config: the field's path leads the text and is in the metadata.
#pragma once

#include <string>

#include "kernels/base/error.h"

namespace meshloom::base {

template <typename... Args>
[[noreturn]] void refuse_field(const std::string& field, fmt::format_string<Args...> format,
                               Args&&... args) {
  throw InvalidArgument(
      fmt::format("{}: {}", field, fmt::format(format, std::forward<Args>(args)...)),
      "INVALID_ARGUMENT", {{"field", field}});
}

template <typename... Args>
[[noreturn]] void field_not_offered(const std::string& field, fmt::format_string<Args...> format,
                                    Args&&... args) {
  throw Unimplemented(
      fmt::format("{}: {}", field, fmt::format(format, std::forward<Args>(args)...)), "NOT_OFFERED",
      {{"field", field}});
}

/// Throws the error anew, as the class of its kind, with the field before its text and in its
/// metadata.
[[noreturn]] void throw_with_field(const Error& error, const std::string& field);

/// Adds the field to an error that something below threw about its value, keeping kind and reason:
/// what may be tried again stays so.
template <typename Body>
auto with_field(const std::string& field, Body&& body) {
  try {
    return body();
  } catch (const Error& error) {
    if (error.metadata().contains("field")) throw;
    throw_with_field(error, field);
  }
}

}  // namespace meshloom::base
