// SPDX-License-Identifier: Apache-2.0
// Numbers and texts in a field: the width, digits and signs that formats of Python ask for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/text/template/value.h"

namespace meshloom::text::chat {

struct FormatSpec {
  std::string fill = " ";
  char align = '\0';  ///< < > ^ or = (behind the sign); none: that of the type
  char sign = '-';    ///< + and blank show one in front of numbers from 0 on
  bool alternate = false, grouped = false;
  std::int64_t width = 0;
  std::int64_t precision = -1;  ///< -1: none
  char type = '\0';
};

/// Largest width and precision that are taken.
inline constexpr std::int64_t kMostFormatWidth = 10'000;

/// Throws for types that a number or a text has not.
std::string format_integer(Work& work, std::int64_t value, const FormatSpec& spec);
std::string format_real(Work& work, double value, const FormatSpec& spec);
std::string format_string(Work& work, std::string_view text, const FormatSpec& spec);

/// Reads digits at `at`, moves behind them. Throws where they are more than kMostFormatWidth.
std::int64_t read_format_number(Work& work, std::string_view text, std::size_t& at);

}  // namespace meshloom::text::chat
