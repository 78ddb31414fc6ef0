// SPDX-License-Identifier: Apache-2.0
// Conversation: what a line of .jsonl holds of a conversation, of a prompt with its completion, or
// of an instruction with its output.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "daemon/text/json_lines.h"

namespace meshloom::text {

enum class LineKind {
  kMessages,     ///< "messages": a list of {role, content}
  kCompletion,   ///< "prompt" and "completion"
  kInstruction,  ///< "instruction" and "output", and "input" where there is more to say
};

struct Conversation {
  /// The messages are as a chat template takes them: objects whose role and content are texts and
  /// come first, and without keys that are null. A prompt and an instruction are a user's turn.
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  /// Kinds without messages have their conversation as plain text, too: what comes before the
  /// answer.
  std::string plain_prompt = {};
  std::string plain_answer = {};
  bool has_lone_surrogates = false;  ///< U+FFFD stands for halves of surrogate pairs in the line
};

/// Returns the keys of a kind, for errors: "\"prompt\" and \"completion\"".
const char* keys_of(LineKind kind);

/// Returns what an object holds by its keys; nothing for any other value.
std::optional<LineKind> kind_of(const nlohmann::json& line);

/// A line with a conversation has at most so many bytes: what is rendered of one takes many times
/// its bytes, in every thread.
inline constexpr std::size_t kMostConversationBytes = std::size_t{16} << 20;

/// Throws InvalidArgument naming the place: CONVERSATION_TOO_LONG for more than
/// kMostConversationBytes, INVALID_ARGUMENT for a line that is no object of JSON
/// or nests deeper than 64 levels, NO_CONVERSATION for one of another kind, BAD_CONVERSATION for
/// messages that are none: no list or an empty one, no role, a content that is neither text nor a
/// list of parts of text. Unimplemented (NOT_OFFERED) for tools, and for parts of other types.
Conversation conversation_of_line(std::string_view line, LineKind kind, const LinePlace& place);

/// Returns what conversation_of_line makes of messages. `where` begins errors.
nlohmann::ordered_json checked_messages(const nlohmann::json& messages, const std::string& where,
                                        const Error::Metadata& metadata);

}  // namespace meshloom::text
