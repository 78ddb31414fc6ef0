// SPDX-License-Identifier: Apache-2.0
// JSON files of strangers: read strictly, in time and memory that are proportional to them.
#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>

namespace meshloom::base {

struct JsonLimits {
  std::size_t depth = 64;          ///< of values in values: copies and dump() of them recurse
  std::size_t values = 1'000'000;  ///< each takes up to 200 bytes of memory
  bool keys_once = true;           ///< else the last of two counts
  /// Asked now and then; what it throws ends the reading. Empty: never.
  std::function<void()> alive = {};
};

/// Throws InvalidArgument saying what is wrong with a text that is no JSON, nests deeper, or has an
/// object with one key twice, of which readers take either, unless they may; ResourceExhausted
/// (JSON_TOO_LARGE) for one of more values. The caller knows what file it is.
nlohmann::json parse_strict_json(std::string_view text, const JsonLimits& limits = {});

}  // namespace meshloom::base
