// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/json_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>

#include "daemon/base/strict_json.h"
#include "daemon/base/utf8.h"

namespace meshloom::text {
namespace {

std::string keys_of(const nlohmann::json& object) {
  constexpr std::size_t kMostKeys = 12, kMostBytes = 60;
  std::string keys;
  std::size_t count = 0;
  for (const auto& [key, value] : object.items()) {
    if (count++ == kMostKeys) return keys + ", ...";
    keys += fmt::format("{}\"{}\"", keys.empty() ? "" : ", ",
                        base::printable_text(key, kMostBytes, false));
  }
  return keys;
}

std::string what_is_there(const nlohmann::json& json, const std::string& field) {
  if (!json.is_object())
    return fmt::format("it is of the type {}, expected an object", json.type_name());
  if (json.contains(field))
    return fmt::format("what it has there is of the type {}", json.at(field).type_name());
  return json.empty() ? "the line has no keys" : "the line has " + keys_of(json);
}

bool is_high_half(unsigned unit) { return unit >= 0xD800 && unit < 0xDC00; }
bool is_low_half(unsigned unit) { return unit >= 0xDC00 && unit < 0xE000; }

constexpr std::size_t kMostValuesOfLine = 4'000'000;  ///< of a line

constexpr std::size_t kEscapeBytes = 6;  ///< "\uXXXX"

/// What an escape "\uXXXX" at `at` stands for.
std::optional<unsigned> escaped_unit(std::string_view line, std::size_t at) {
  const std::string_view escape = line.substr(std::min(at, line.size()), kEscapeBytes);
  if (escape.size() < kEscapeBytes || !escape.starts_with("\\u")) return std::nullopt;
  unsigned unit = 0;
  const char* const end = escape.data() + kEscapeBytes;
  const auto [stopped, error] = std::from_chars(escape.data() + 2, end, unit, 16);
  if (error != std::errc() || stopped != end) return std::nullopt;
  return unit;
}

/// The line with `escape` instead of every escape of half a surrogate pair; nothing if there is
/// none.
std::optional<std::string> with_halves_replaced(std::string_view line, std::string_view escape) {
  std::string out;
  std::size_t done = 0;
  for (std::size_t at = line.find('\\'); at < line.size(); at = line.find('\\', at)) {
    const std::optional<unsigned> unit = escaped_unit(line, at);
    if (!unit) {
      at += 2;
    } else if (is_high_half(*unit) &&
               is_low_half(escaped_unit(line, at + kEscapeBytes).value_or(0))) {
      at += 2 * kEscapeBytes;
    } else {
      if (is_high_half(*unit) || is_low_half(*unit)) {
        out.append(line, done, at - done).append(escape);
        done = at + kEscapeBytes;
      }
      at += kEscapeBytes;
    }
  }
  if (done == 0) return std::nullopt;
  return out.append(line, done);
}

const nlohmann::json* text_of(const nlohmann::json& json, const std::string& field) {
  if (!json.is_object()) return nullptr;
  const auto found = json.find(field);
  return found != json.end() && found->is_string() ? &*found : nullptr;
}

/// Discarded where the line is no JSON. Throws ResourceExhausted for one of values without end:
/// they take many times the memory of the line.
nlohmann::json parsed(std::string_view line, const LinePlace& place, std::size_t depth) {
  try {
    return base::parse_strict_json(
        line, {.depth = depth, .values = kMostValuesOfLine, .keys_once = false});
  } catch (const InvalidArgument&) {
    return nlohmann::json::value_t::discarded;
  } catch (const ResourceExhausted& error) {
    throw ResourceExhausted(place.text() + error.what(), error.reason(), place.metadata());
  }
}

}  // namespace

std::string LinePlace::text() const { return fmt::format("{}:{}: ", path.string(), number); }

Error::Metadata LinePlace::metadata() const {
  return {{"path", path.string()}, {"line", std::to_string(number)}};
}

std::string keys_of_line(const nlohmann::json& json) {
  return json.is_object() && !json.empty()
             ? keys_of(json)
             : fmt::format("no keys, it is of the type {}", json.type_name());
}

LineJson json_of_line(std::string_view line, const LinePlace& place, std::size_t depth) {
  LineJson read{parsed(line, place, depth)};
  if (!read.json.is_discarded()) return read;
  if (const auto repaired = with_halves_replaced(line, "\\ufffd"))
    read = {parsed(*repaired, place, depth), true};
  if (!read.json.is_discarded()) return read;
  const bool nests = depth != std::numeric_limits<std::size_t>::max();
  throw InvalidArgument(
      place.text() +
          (!base::is_utf8(line) ? "the line has bytes that are no UTF-8, and is therefore no JSON"
           : nests ? fmt::format("the line is no JSON, or nests deeper than {} levels", depth)
                   : "the line is no JSON"),
      "INVALID_ARGUMENT", place.metadata());
}

std::optional<Document> document_of_line(std::string_view line, const DocumentReading& reading,
                                         const LinePlace& place) {
  const LineJson read = json_of_line(line, place);
  const nlohmann::json* const text = text_of(read.json, reading.field);
  if (!text) {
    if (reading.skips_lines_without_text) return std::nullopt;
    throw NoTextField(
        place.text() + fmt::format("there is no text under \"{}\": {} (skip_lines_without_text: "
                                   "true leaves such lines out)",
                                   reading.field, what_is_there(read.json, reading.field)),
        place.metadata());
  }
  Document document{text->get<std::string>()};
  if (read.is_repaired) {
    // The halves may lie under other keys.
    const nlohmann::json other = json_of_line(*with_halves_replaced(line, "\\ufffe"), place).json;
    const nlohmann::json* const other_text = text_of(other, reading.field);
    document.has_lone_surrogates = !other_text || *other_text != *text;
  }
  return document;
}

}  // namespace meshloom::text
