// SPDX-License-Identifier: Apache-2.0
// The JSON of a case, key by key.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace meshloom::conformance {

using Json = nlohmann::ordered_json;

/// Reads one JSON object key by key; every complaint names `where` and the key.
class ObjectReader {
 public:
  /// Throws InvalidArgument unless `object` is an object.
  ObjectReader(const Json& object, std::string where);

  bool has(std::string_view key) const { return object_.contains(key); }
  /// These throw InvalidArgument where the key is missing or of another type.
  std::int64_t integer(std::string_view key);
  double number(std::string_view key);
  bool boolean(std::string_view key);
  std::string string(std::string_view key);
  /// A number stands for a list of one.
  std::vector<std::int64_t> integers(std::string_view key);
  const Json& value(std::string_view key);

  std::int64_t integer_or(std::string_view key, std::int64_t other);
  double number_or(std::string_view key, double other);
  bool boolean_or(std::string_view key, bool other);
  std::string string_or(std::string_view key, const std::string& other);

  /// Throws InvalidArgument naming the first key that was never asked for.
  void finish() const;

 private:
  const Json& object_;
  std::string where_;
  std::vector<std::string> asked_;
};

}  // namespace meshloom::conformance
