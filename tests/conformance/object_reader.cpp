// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/object_reader.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace meshloom::conformance {
namespace {

[[noreturn]] void refuse(const std::string& where, std::string_view key, const char* expected,
                         const Json& seen) {
  throw InvalidArgument(fmt::format("{}.{} must be {}, not {}", where, key, expected, seen.dump()));
}

}  // namespace

ObjectReader::ObjectReader(const Json& object, std::string where)
    : object_(object), where_(std::move(where)) {
  check(object.is_object(), "{} must be an object, not {}", where_, object.dump());
}

const Json& ObjectReader::value(std::string_view key) {
  asked_.emplace_back(key);
  const auto found = object_.find(key);
  if (found == object_.end()) {
    // Names what is there: the key may be misspelled.
    std::vector<std::string> keys;
    for (const auto& [name, unused] : object_.items()) keys.push_back(name);
    throw InvalidArgument(
        fmt::format("{} has no key '{}' (it has: {})", where_, key, fmt::join(keys, ", ")));
  }
  return *found;
}

std::int64_t ObjectReader::integer(std::string_view key) {
  const Json& seen = value(key);
  if (!seen.is_number_integer()) refuse(where_, key, "an integer", seen);
  return seen.get<std::int64_t>();
}

double ObjectReader::number(std::string_view key) {
  const Json& seen = value(key);
  if (!seen.is_number()) refuse(where_, key, "a number", seen);
  return seen.get<double>();
}

bool ObjectReader::boolean(std::string_view key) {
  const Json& seen = value(key);
  if (!seen.is_boolean()) refuse(where_, key, "true or false", seen);
  return seen.get<bool>();
}

std::string ObjectReader::string(std::string_view key) {
  const Json& seen = value(key);
  if (!seen.is_string()) refuse(where_, key, "a string", seen);
  return seen.get<std::string>();
}

std::vector<std::int64_t> ObjectReader::integers(std::string_view key) {
  const Json& seen = value(key);
  if (seen.is_number_integer()) return {seen.get<std::int64_t>()};
  const bool fits = seen.is_array() && std::all_of(seen.begin(), seen.end(), [](const Json& item) {
                      return item.is_number_integer();
                    });
  if (!fits) refuse(where_, key, "an integer or a list of integers", seen);
  return seen.get<std::vector<std::int64_t>>();
}

std::int64_t ObjectReader::integer_or(std::string_view key, std::int64_t other) {
  return has(key) ? integer(key) : other;
}

double ObjectReader::number_or(std::string_view key, double other) {
  return has(key) ? number(key) : other;
}

bool ObjectReader::boolean_or(std::string_view key, bool other) {
  return has(key) ? boolean(key) : other;
}

std::string ObjectReader::string_or(std::string_view key, const std::string& other) {
  return has(key) ? string(key) : other;
}

void ObjectReader::finish() const {
  for (const auto& [key, unused] : object_.items())
    check(std::find(asked_.begin(), asked_.end(), key) != asked_.end(),
          "{} has the unknown key '{}'", where_, key);
}

}  // namespace meshloom::conformance
