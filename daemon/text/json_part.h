// SPDX-License-Identifier: Apache-2.0
// JsonPart: one part of a tokenizer's JSON files, read strictly: what is not known is refused by
// its name.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/text/budget.h"

namespace meshloom::text {

/// JsonPart is a value and where it is. It does not own the value. Every error names the path:
/// InvalidArgument for what is not as the format says, Unimplemented (NOT_OFFERED) for what this
/// program does not know.
class JsonPart {
 public:
  using Json = nlohmann::json;

  JsonPart(const Json& json, std::string path) : json_(&json), path_(std::move(path)) {}

  const Json& json() const { return *json_; }
  const std::string& path() const { return path_; }

  /// Refuses any key of this object that is not among `keys`.
  void allow_only(std::initializer_list<std::string_view> keys) const;
  /// Tells whether the key is there and not null.
  bool has(std::string_view key) const;
  /// Returns the value of a key that must be there.
  JsonPart at(std::string_view key) const;
  /// Returns the elements of an array under a key, at most `most`.
  std::vector<JsonPart> elements(std::string_view key,
                                 std::size_t most = std::numeric_limits<std::size_t>::max()) const;

  std::string text() const;
  std::string text(std::string_view key) const { return at(key).text(); }
  /// Reads a text of at most kMostPartBytes: every step of a text may use it again.
  std::string short_text(std::string_view key) const;
  std::optional<std::string> optional_text(std::string_view key) const;
  bool flag(std::string_view key) const;
  bool flag(std::string_view key, bool otherwise) const;
  /// Reads an integer from 0 to `most`.
  std::int64_t number(std::int64_t most) const;

  [[noreturn]] void refuse(const std::string& text) const;
  [[noreturn]] void not_offered(const std::string& text) const;
  /// Throws ResourceExhausted (TOKENIZER_LIMIT): the part is larger than any that is of use.
  [[noreturn]] void too_large(const std::string& text) const;

  /// Throws ResourceExhausted (TOKENIZER_LIMIT) where kMostSteps steps are before this part.
  void check_step(std::size_t before, const char* kinds) const;

 private:
  const Json* json_;
  std::string path_;
};

/// Bytes of a token, of a pattern and of whatever is put into texts.
inline constexpr std::size_t kMostPartBytes = 4096;
/// Steps that a normalizer, a pre-tokenizer, a decoder or a post-processor has together.
inline constexpr std::size_t kMostSteps = 32;

/// Throws ResourceExhausted (TOKENIZER_LIMIT): what is at the path is larger than what is of use.
[[noreturn]] void throw_too_large(const std::string& path, const std::string& text);

/// Appends what `read` makes of a part and its type; of a "Sequence", what it makes of the parts
/// under the key `kinds`, also of sequences in it, one behind the other.
template <typename Step, typename Read>
void add_steps(const JsonPart& part, const char* kinds, const Read& read,
               std::vector<Step>& steps) {
  const std::string type = part.text("type");
  if (type == "Sequence") {
    part.allow_only({"type", kinds});
    for (const JsonPart& step : part.elements(kinds)) add_steps(step, kinds, read, steps);
    return;
  }
  part.check_step(steps.size(), kinds);
  steps.push_back(read(part, type));
}

/// Parses a file's text; `path` is for errors. Refuses values that are nested deeper than 64
/// levels, an object with a key twice, and more values than a vocabulary has. `stop` is asked now
/// and then.
nlohmann::json parse_json(std::string_view text, const std::string& path,
                          const StopCheck& stop = {});

}  // namespace meshloom::text
