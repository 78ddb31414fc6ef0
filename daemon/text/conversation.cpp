// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/conversation.h"

#include <fmt/format.h>

#include <array>

#include "daemon/base/utf8.h"

namespace meshloom::text {
namespace {

using Json = nlohmann::json;
using Ordered = nlohmann::ordered_json;

/// Levels of a line: copies of values recurse.
constexpr std::size_t kDeepest = 64;

constexpr std::array kReasoning = {"reasoning_content", "thinking", "reasoning"};

/// Where a value is, for its errors.
struct Where {
  std::string text;  ///< "chat.jsonl:3: messages[1]"
  const Error::Metadata& metadata;

  [[noreturn]] void refuse(const std::string& why) const {
    throw InvalidArgument(text + why, "BAD_CONVERSATION", metadata);
  }
  [[noreturn]] void not_offered(const std::string& why) const {
    throw Unimplemented(text + why, "NOT_OFFERED", metadata);
  }
};

bool is_given(const Json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && !at->is_null() && !(at->is_array() && at->empty());
}

/// The texts of the parts stand one behind the other.
std::string joined(const Json& parts, const Where& where) {
  std::string text;
  for (const Json& part : parts) {
    if (!part.is_object() || !part.contains("type") || !part["type"].is_string())
      where.refuse(".content: a part of it has no type, expected {type: text, text: ...}");
    if (part["type"] != "text")
      where.not_offered(
          fmt::format(".content: a part of it is of the type \"{}\", text alone is trained on",
                      base::printable_text(part["type"].get<std::string>(), 40, false)));
    if (!part.contains("text") || !part["text"].is_string())
      where.refuse(".content: a part of the type text has no text");
    text += part["text"].get<std::string>();
  }
  return text;
}

std::string content_of(const Json& message, const Where& where) {
  if (is_given(message, "tool_calls") || is_given(message, "function_call"))
    where.not_offered(" calls a tool: conversations with tools are not trained on");
  const auto at = message.find("content");
  if (at == message.end() || at->is_null())
    where.refuse(" has no content, expected {role: ..., content: ...}");
  if (at->is_array()) return joined(*at, where);
  if (!at->is_string())
    where.refuse(fmt::format(".content is of the type {}, expected text or a list of parts of text",
                             at->type_name()));
  return at->get<std::string>();
}

/// As transformers hands a message to a template: null is not there, and the reasoning has each of
/// the names that templates read it by.
Ordered checked_message(const Json& message, const Where& where) {
  if (!message.is_object())
    where.refuse(fmt::format(" is of the type {}, expected {{role: ..., content: ...}}",
                             message.type_name()));
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string() || role->get_ref<const std::string&>().empty())
    where.refuse(" has no role, expected system, user, assistant or another that the template has");
  Ordered made = {{"role", role->get<std::string>()}, {"content", content_of(message, where)}};
  for (const auto& [key, value] : message.items())
    if (!value.is_null() && key != "role" && key != "content") made[key] = value;
  for (const char* name : kReasoning) {
    if (!is_given(message, name)) continue;
    made["reasoning_content"] = message[name];
    if (!made.contains("thinking")) made["thinking"] = message[name];
    break;
  }
  return made;
}

/// The text under a key of an instruction or a completion.
std::string text_under(const Json& line, const char* key, bool is_needed, const Where& where) {
  const auto at = line.find(key);
  if (at == line.end() || at->is_null()) {
    if (!is_needed) return {};
    where.refuse(fmt::format("there is no text under \"{}\"", key));
  }
  if (!at->is_string())
    where.refuse(
        fmt::format("what is under \"{}\" is of the type {}, expected text", key, at->type_name()));
  return at->get<std::string>();
}

void set_turns(const std::string& user, const std::string& assistant, Conversation* made) {
  made->messages.push_back({{"role", "user"}, {"content", user}});
  made->messages.push_back({{"role", "assistant"}, {"content", assistant}});
  made->plain_answer = assistant;
}

Conversation of_completion(const Json& line, const Where& where) {
  Conversation made;
  made.plain_prompt = text_under(line, "prompt", true, where);
  set_turns(made.plain_prompt, text_under(line, "completion", true, where), &made);
  return made;
}

Conversation of_instruction(const Json& line, const Where& where) {
  const std::string instruction = text_under(line, "instruction", true, where);
  const std::string input = text_under(line, "input", false, where);
  Conversation made;
  const std::string more = input.empty() ? "" : "### Input:\n" + input + "\n\n";
  made.plain_prompt = "### Instruction:\n" + instruction + "\n\n" + more + "### Response:\n";
  set_turns(input.empty() ? instruction : instruction + "\n\n" + input,
            text_under(line, "output", true, where), &made);
  return made;
}

[[noreturn]] void refuse_kind(const Json& json, LineKind kind, const Where& where) {
  const auto found = kind_of(json);
  const std::string has = found ? std::string(keys_of(*found)) : keys_of_line(json);
  throw InvalidArgument(
      fmt::format(
          "{}the line has {}, expected {}{}", where.text, has, keys_of(kind),
          found ? ": all lines are of the kind of the first one, or of data.chat.kind" : ""),
      "NO_CONVERSATION", where.metadata);
}

}  // namespace

const char* keys_of(LineKind kind) {
  switch (kind) {
    case LineKind::kMessages: return "\"messages\"";
    case LineKind::kCompletion: return "\"prompt\" and \"completion\"";
    case LineKind::kInstruction: return "\"instruction\" and \"output\"";
  }
  return "";
}

std::optional<LineKind> kind_of(const Json& json) {
  if (!json.is_object()) return std::nullopt;
  if (json.contains("messages")) return LineKind::kMessages;
  if (json.contains("prompt") && json.contains("completion")) return LineKind::kCompletion;
  if (json.contains("instruction") && json.contains("output")) return LineKind::kInstruction;
  return std::nullopt;
}

Ordered checked_messages(const Json& messages, const std::string& where,
                         const Error::Metadata& metadata) {
  const Where all{where + "messages", metadata};
  if (!messages.is_array())
    all.refuse(fmt::format(" is of the type {}, expected a list of {{role: ..., content: ...}}",
                           messages.type_name()));
  if (messages.empty()) all.refuse(" is empty");
  Ordered checked = Ordered::array();
  for (std::size_t i = 0; i < messages.size(); ++i)
    checked.push_back(
        checked_message(messages[i], {fmt::format("{}messages[{}]", where, i), metadata}));
  return checked;
}

Conversation conversation_of_line(std::string_view line, LineKind kind, const LinePlace& place) {
  const Error::Metadata metadata = place.metadata();
  const Where where{place.text(), metadata};
  if (line.size() > kMostConversationBytes)
    throw InvalidArgument(
        fmt::format("{}the conversation has {} bytes, at most {} are taken for one", where.text,
                    line.size(), kMostConversationBytes),
        "CONVERSATION_TOO_LONG", metadata);
  const LineJson read = json_of_line(line, place, kDeepest);
  if (kind_of(read.json) != kind) refuse_kind(read.json, kind, where);
  if (is_given(read.json, "tools") || is_given(read.json, "functions"))
    where.not_offered("the line has tools: conversations with tools are not trained on");
  Conversation made;
  if (kind == LineKind::kMessages)
    made.messages = checked_messages(read.json["messages"], where.text, metadata);
  else
    made = kind == LineKind::kCompletion ? of_completion(read.json, where)
                                         : of_instruction(read.json, where);
  made.has_lone_surrogates = read.is_repaired;
  return made;
}

}  // namespace meshloom::text
