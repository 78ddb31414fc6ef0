// SPDX-License-Identifier: Apache-2.0
// Checks of option values whose messages fit a line: the parser library's own spell the limits of
// double.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>

namespace meshloom::command_line {

namespace number_checks {

template <typename Fits>
CLI::Validator make(const char* name, const char* expected, Fits fits) {
  return CLI::Validator(
      [expected, fits](std::string& text) {
        double value = 0;
        const bool number = CLI::detail::lexical_cast(text, value);
        return number && fits(value) ? std::string()
                                     : fmt::format("is {}, expected {}", text, expected);
      },
      name);
}

}  // namespace number_checks

/// Checks that a number is above 0.
inline CLI::Validator positive() {
  return number_checks::make("POSITIVE", "a number above 0", [](double v) { return v > 0; });
}
/// Checks that a number is 0 or more.
inline CLI::Validator not_negative() {
  return number_checks::make("NONNEGATIVE", "0 or more", [](double v) { return v >= 0; });
}

/// Reads bytes as the number of a text with its unit, 80GB (by 1000) or 24GiB (by 1024): a bare
/// number leaves open what it counts. For transform().
inline CLI::Validator size_with_unit() {
  return CLI::Validator(
      [as_size = CLI::AsSizeValue(true)](std::string& text) -> std::string {
        const std::string seen = text;  // of a wrong one the number alone may be left
        const bool bare =
            !text.empty() && text.find_first_not_of("0123456789.+-") == std::string::npos;
        try {
          if (!bare && as_size(text).empty()) return std::string();
        } catch (const CLI::ValidationError&) {
          // A number without a unit, or a unit that is none: the message below is for both.
        }
        return fmt::format("is {}, expected a number with its unit, such as 24GiB or 80GB", seen);
      },
      "SIZE");
}

}  // namespace meshloom::command_line
