// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/optim/name_pattern.h"

#include <algorithm>

namespace meshloom::train {
namespace {

std::string_view take_component(std::string_view& rest) {
  const auto dot = rest.find('.');
  const std::string_view component = rest.substr(0, dot);
  rest = dot == std::string_view::npos ? std::string_view() : rest.substr(dot + 1);
  return component;
}

}  // namespace

bool matches_pattern(std::string_view pattern, std::string_view name) {
  if (std::count(pattern.begin(), pattern.end(), '.') != std::count(name.begin(), name.end(), '.'))
    return false;
  while (!pattern.empty() || !name.empty()) {
    const auto wanted = take_component(pattern);
    const auto given = take_component(name);
    if (wanted != "*" && wanted != given) return false;
  }
  return true;
}

}  // namespace meshloom::train
