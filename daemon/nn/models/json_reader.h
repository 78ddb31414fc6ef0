// SPDX-License-Identifier: Apache-2.0
// Typed look-ups in a config.json, with errors that name the key.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace meshloom::nn {

/// JsonReader is a JSON object that is read key by key, and knows which keys it was asked for. null
/// counts as missing, but where transformers would compute with it, and fail: there it is refused.
/// Every error is an InvalidArgument "config.json: KEY ..." with metadata "key".
class JsonReader {
 public:
  /// `prefix` goes before keys in messages ("rope_parameters.").
  explicit JsonReader(const nlohmann::json& object, std::string prefix = {});

  bool has(const char* key) const;
  bool written(const char* key) const;  ///< null too
  /// `alias` where the object has that, else `key`: transformers lets an alias count first.
  const char* either(const char* key, const char* alias) const;
  /// Reads an integer from 1 to `most`; null is refused.
  std::int64_t size(const char* key, std::int64_t fallback,
                    std::int64_t most = std::numeric_limits<std::int32_t>::max()) const;
  /// Reads as size() does a key where transformers has null for "as the others say".
  std::int64_t size_or_null(const char* key, std::int64_t fallback, std::int64_t most) const {
    return has(key) ? size(key, fallback, most) : fallback;
  }
  /// Reads an integer from 0 on; null is refused.
  std::int64_t count(const char* key, std::int64_t fallback) const;
  /// Here null means "none", and only a missing key takes the fallback.
  std::optional<std::int64_t> token_id(const char* key, std::optional<std::int64_t> fallback) const;
  double number(const char* key, double fallback) const;
  /// Reads a number, where null is refused.
  double given_number(const char* key, double fallback) const;
  /// Reads a number in [0, 1); null is refused.
  double probability(const char* key, double fallback) const;
  bool boolean(const char* key, bool fallback) const;
  std::string string(const char* key, const std::string& fallback) const;
  const nlohmann::json& at(const char* key) const { return object_.at(key); }

  /// Returns the keys that were asked for, there or not, in order.
  std::vector<std::string> asked() const { return {asked_.begin(), asked_.end()}; }
  /// Returns the object's keys that were not asked for and are not null, in order, without the
  /// prefix.
  std::vector<std::string> not_asked() const;
  const std::string& prefix() const { return prefix_; }

  /// Throws Unimplemented unless the key is missing or has this value.
  void expect(const char* key, const nlohmann::json& only) const;

  [[noreturn]] void fail(const char* key, const std::string& what) const;
  [[noreturn]] void refuse(const char* key, const std::string& what) const;

 private:
  std::int64_t integer(const char* key, std::int64_t fallback, std::int64_t least,
                       std::int64_t most) const;

  const nlohmann::json& object_;
  std::string prefix_;
  mutable std::set<std::string> asked_;
};

}  // namespace meshloom::nn
