// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/models/json_reader.h"

#include <cmath>

#include "kernels/base/error.h"

namespace meshloom::nn {
namespace {

/// A value as text, cut to what fits in a message.
std::string shown(const nlohmann::json& value) {
  std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (text.size() > 60) text.replace(60, std::string::npos, "...");
  return text;
}

}  // namespace

JsonReader::JsonReader(const nlohmann::json& object, std::string prefix)
    : object_(object), prefix_(std::move(prefix)) {}

bool JsonReader::has(const char* key) const {
  asked_.insert(key);
  const auto found = object_.find(key);
  return found != object_.end() && !found->is_null();
}

bool JsonReader::written(const char* key) const {
  asked_.insert(key);
  return object_.contains(key);
}

const char* JsonReader::either(const char* key, const char* alias) const {
  asked_.insert(key);
  return has(alias) ? alias : key;
}

std::vector<std::string> JsonReader::not_asked() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object_.items())
    if (!value.is_null() && !asked_.contains(key)) keys.push_back(key);
  return keys;
}

void JsonReader::fail(const char* key, const std::string& what) const {
  throw InvalidArgument(fmt::format("config.json: {}{} {}", prefix_, key, what),
                        "INVALID_MODEL_CONFIG", {{"key", prefix_ + key}});
}

void JsonReader::refuse(const char* key, const std::string& what) const {
  throw Unimplemented(fmt::format("config.json: {}{} {}", prefix_, key, what),
                      "UNSUPPORTED_MODEL_CONFIG", {{"key", prefix_ + key}});
}

std::int64_t JsonReader::size(const char* key, std::int64_t fallback, std::int64_t most) const {
  return integer(key, fallback, 1, most);
}

std::int64_t JsonReader::count(const char* key, std::int64_t fallback) const {
  return integer(key, fallback, 0, std::numeric_limits<std::int32_t>::max());
}

std::int64_t JsonReader::integer(const char* key, std::int64_t fallback, std::int64_t least,
                                 std::int64_t most) const {
  if (!written(key)) return fallback;
  const nlohmann::json& value = at(key);
  if (!value.is_number_integer() || value.get<std::int64_t>() < least ||
      value.get<std::int64_t>() > most ||
      (value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(most)))
    fail(key,
         fmt::format("is {}, but an integer from {} to {} is expected", shown(value), least, most));
  return value.get<std::int64_t>();
}

std::optional<std::int64_t> JsonReader::token_id(const char* key,
                                                 std::optional<std::int64_t> fallback) const {
  if (!has(key)) return written(key) ? std::nullopt : fallback;
  const nlohmann::json& value = at(key);
  if (!value.is_number_integer()) fail(key, fmt::format("is {}, not a token id", shown(value)));
  // Old files write -1 for "none".
  if (value.get<std::int64_t>() < 0) return std::nullopt;
  return value.get<std::int64_t>();
}

double JsonReader::number(const char* key, double fallback) const {
  if (!has(key)) return fallback;
  const nlohmann::json& value = at(key);
  if (!value.is_number() || !std::isfinite(value.get<double>()))
    fail(key, fmt::format("is {}, but a number is expected", shown(value)));
  return value.get<double>();
}

double JsonReader::given_number(const char* key, double fallback) const {
  if (written(key) && !has(key)) fail(key, "is null, but a number is expected");
  return number(key, fallback);
}

double JsonReader::probability(const char* key, double fallback) const {
  const double value = given_number(key, fallback);
  if (value < 0.0 || value >= 1.0)
    fail(key, fmt::format("is {}, but a number from 0 to less than 1 is expected", value));
  return value;
}

bool JsonReader::boolean(const char* key, bool fallback) const {
  if (!has(key)) return fallback;
  const nlohmann::json& value = at(key);
  if (!value.is_boolean())
    fail(key, fmt::format("is {}, but true or false is expected", shown(value)));
  return value.get<bool>();
}

std::string JsonReader::string(const char* key, const std::string& fallback) const {
  if (!has(key)) return fallback;
  const nlohmann::json& value = at(key);
  if (!value.is_string()) fail(key, fmt::format("is {}, but a string is expected", shown(value)));
  return value.get<std::string>();
}

void JsonReader::expect(const char* key, const nlohmann::json& only) const {
  if (has(key) && at(key) != only)
    refuse(key, fmt::format("is {}; only {} is supported", shown(at(key)), shown(only)));
}

}  // namespace meshloom::nn
