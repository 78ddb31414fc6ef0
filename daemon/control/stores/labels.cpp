// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/labels.h"

#include <algorithm>

#include "daemon/base/field_error.h"

namespace meshloom::control {
namespace {

constexpr std::size_t kLongest = 63;
constexpr int kMost = 64;

bool is_key(const std::string& key) {
  const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  return !key.empty() && key.size() <= kLongest && plain(key[0]) &&
         std::all_of(key.begin(), key.end(), [&](char c) {
           return plain(c) || c == '.' || c == '_' || c == '/' || c == '-';
         });
}

bool is_value(const std::string& value) {
  return value.size() <= kLongest &&
         std::all_of(value.begin(), value.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

}  // namespace

void check_labels(const LabelMap& labels, const std::string& field) {
  if (labels.size() > kMost)
    base::refuse_field(field, "{} labels are more than {}", labels.size(), kMost);
  for (const auto& [key, value] : labels) {
    if (!is_key(key))
      base::refuse_field(field,
                         "the key \"{}\" is not valid, expected [a-z0-9][a-z0-9._/-]{{0,62}}",
                         key.substr(0, 80));
    if (!is_value(value))
      base::refuse_field(fmt::format("{}[{}]", field, key),
                         "the value is not valid, expected at most {} printable ASCII characters",
                         kLongest);
  }
}

bool has_labels(const LabelMap& labels, const LabelMap& wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [&](const auto& item) {
    const auto found = labels.find(item.first);
    return found != labels.end() && found->second == item.second;
  });
}

}  // namespace meshloom::control
