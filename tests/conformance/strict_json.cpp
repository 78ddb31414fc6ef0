// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/strict_json.h"

#include <set>

#include "kernels/base/error.h"

namespace meshloom::conformance {

Json parse_strict_json(const std::string& text) {
  constexpr int kMaxDepth = 64;
  std::vector<std::set<std::string>> keys;
  const Json::parser_callback_t watch = [&](int depth, Json::parse_event_t event, Json& value) {
    check(depth <= kMaxDepth, "JSON is nested deeper than {} levels", kMaxDepth);
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key) {
      const std::string key = value.get<std::string>();
      check(keys.back().insert(key).second, "JSON names the key '{}' twice", key);
    }
    return true;
  };
  try {
    return Json::parse(text, watch);
  } catch (const Json::exception& error) {
    throw InvalidArgument(fmt::format("not JSON: {}", error.what()));
  }
}

}  // namespace meshloom::conformance
