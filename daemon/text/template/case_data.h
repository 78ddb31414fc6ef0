// SPDX-License-Identifier: Apache-2.0
// The generated tables that characters.h gives access to: what Python takes characters for.
// Written by scripts/text/make_case_data.py.
#pragma once

#include <cstdint>
#include <span>

namespace meshloom::text::chat::case_data {

/// Range has characters first to last, in steps.
struct Range {
  std::uint32_t first, last, step;
};
/// A Shift is a Range of characters, and tells how far the other case is from them.
struct Shift {
  std::uint32_t first, last, step;
  std::int32_t distance;
};
/// Expansion is a character whose other case is up to three, 0 where it is fewer.
struct Expansion {
  std::uint32_t character, to[3];
};

extern const std::span<const Range> kLower, kUpper, kTitle, kCaseIgnorable, kDigits, kNumerics;
extern const std::span<const Shift> kToUpper;
extern const std::span<const Expansion> kToUpperMany, kToTitle;

}  // namespace meshloom::text::chat::case_data
