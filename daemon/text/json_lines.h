// SPDX-License-Identifier: Apache-2.0
// Lines of .jsonl files as documents.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/text/document.h"
#include "kernels/base/error.h"

namespace meshloom::text {

/// The error says that a line of JSON has no text under the field that is asked for.
class NoTextField : public InvalidArgument {
 public:
  NoTextField(const std::string& message, Metadata metadata)
      : InvalidArgument(message, "NO_FIELD", std::move(metadata)) {}
};

/// LinePlace is the place that errors name.
struct LinePlace {
  const std::filesystem::path& path;
  std::int64_t number = 0;  ///< the first is 1

  /// Returns "chat.jsonl:3: "
  std::string text() const;
  Error::Metadata metadata() const;
};

struct LineJson {
  nlohmann::json json;
  /// U+FFFD stands for escapes of halves of surrogate pairs, with which the line is no JSON.
  bool is_repaired = false;
};

/// Throws InvalidArgument naming the place for a line that is no JSON, or nests deeper than
/// `depth`; ResourceExhausted for one of values without end.
LineJson json_of_line(std::string_view line, const LinePlace& place,
                      std::size_t depth = std::numeric_limits<std::size_t>::max());

/// Returns "\"body\", \"n\"", cut where they are many; "no keys, it is of the type number" of what
/// is no object.
std::string keys_of_line(const nlohmann::json& json);

/// Returns the text that a line holds under reading.field; nothing if it holds none and such lines
/// are skipped. An escape of half a surrogate pair ("\ud83d") counts as U+FFFD. Throws
/// InvalidArgument naming the place for a line that is no JSON, and NoTextField with what the line
/// has instead.
std::optional<Document> document_of_line(std::string_view line, const DocumentReading& reading,
                                         const LinePlace& place);

/// Returns true only for a line that document_of_line takes, and for nearly all of those; many
/// times as fast, since it makes nothing of it.
bool plainly_has_text(std::string_view line, std::string_view field);

}  // namespace meshloom::text
