// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/json_part.h"

#include <algorithm>

#include "daemon/base/field_error.h"
#include "daemon/base/strict_json.h"
#include "daemon/base/utf8.h"

namespace meshloom::text {
namespace {

constexpr std::size_t kMostShown = 80;
/// Of one file: the largest that are published have 3 million, and each takes up to 200 bytes.
constexpr std::size_t kMostValues = 8'000'000;

std::string shown(const nlohmann::json& json) {
  const auto text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return base::printable_text(text, kMostShown, false);
}

}  // namespace

void JsonPart::allow_only(std::initializer_list<std::string_view> keys) const {
  if (!json_->is_object()) refuse(fmt::format("got {}, expected an object", shown(*json_)));
  for (const auto& [key, value] : json_->items())
    if (std::find(keys.begin(), keys.end(), key) == keys.end())
      not_offered(fmt::format("the key \"{}\" (= {}) is not known",
                              base::printable_text(key, kMostShown, false), shown(value)));
}

bool JsonPart::has(std::string_view key) const {
  if (!json_->is_object()) refuse(fmt::format("got {}, expected an object", shown(*json_)));
  const auto at = json_->find(key);
  return at != json_->end() && !at->is_null();
}

JsonPart JsonPart::at(std::string_view key) const {
  if (!has(key)) refuse(fmt::format("has no \"{}\"", key));
  return JsonPart(*json_->find(key), fmt::format("{}.{}", path_, key));
}

std::vector<JsonPart> JsonPart::elements(std::string_view key, std::size_t most) const {
  const JsonPart list = at(key);
  if (!list.json().is_array())
    list.refuse(fmt::format("got {}, expected an array", shown(list.json())));
  if (list.json().size() > most)
    list.too_large(fmt::format("has {} elements, expected at most {}", list.json().size(), most));
  std::vector<JsonPart> parts;
  for (std::size_t i = 0; i < list.json().size(); ++i)
    parts.emplace_back(list.json()[i], fmt::format("{}[{}]", list.path(), i));
  return parts;
}

std::string JsonPart::text() const {
  if (!json_->is_string()) refuse(fmt::format("got {}, expected text", shown(*json_)));
  return json_->get<std::string>();
}

std::string JsonPart::short_text(std::string_view key) const {
  const JsonPart part = at(key);
  std::string text = part.text();
  if (text.size() > kMostPartBytes)
    part.too_large(fmt::format("has {} bytes, expected at most {}", text.size(), kMostPartBytes));
  return text;
}

std::optional<std::string> JsonPart::optional_text(std::string_view key) const {
  return has(key) ? std::optional(text(key)) : std::nullopt;
}

bool JsonPart::flag(std::string_view key) const {
  const JsonPart part = at(key);
  if (!part.json().is_boolean())
    part.refuse(fmt::format("got {}, expected true or false", shown(part.json())));
  return part.json().get<bool>();
}

bool JsonPart::flag(std::string_view key, bool otherwise) const {
  return has(key) ? flag(key) : otherwise;
}

std::int64_t JsonPart::number(std::int64_t most) const {
  // A number is stored as signed or not depending on where it comes from.
  const bool fits = json_->is_number_integer() && *json_ >= 0 && *json_ <= most;
  if (!fits) refuse(fmt::format("got {}, expected an integer from 0 to {}", shown(*json_), most));
  return json_->get<std::int64_t>();
}

void JsonPart::refuse(const std::string& text) const { base::refuse_field(path_, "{}", text); }

void JsonPart::not_offered(const std::string& text) const {
  base::field_not_offered(path_, "{}", text);
}

void JsonPart::too_large(const std::string& text) const { throw_too_large(path_, text); }

void JsonPart::check_step(std::size_t before, const char* kinds) const {
  if (before == kMostSteps)
    too_large(
        fmt::format("is behind {} others, expected at most {} {}", before, kMostSteps, kinds));
}

void throw_too_large(const std::string& path, const std::string& text) {
  throw ResourceExhausted(fmt::format("{}: {}", path, text), "TOKENIZER_LIMIT", {{"field", path}});
}

nlohmann::json parse_json(std::string_view text, const std::string& path, const StopCheck& stop) {
  try {
    return base::parse_strict_json(text, {.values = kMostValues, .alive = stop});
  } catch (const InvalidArgument& error) {
    base::refuse_field(path, "{}", error.what());
  } catch (const ResourceExhausted& error) {
    throw_too_large(path, error.what());
  }
}

}  // namespace meshloom::text
