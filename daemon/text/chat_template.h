// SPDX-License-Identifier: Apache-2.0
// ChatTemplate: the chat template of a model's folder, which makes one text of the messages of a
// conversation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/text/budget.h"

namespace meshloom::text {

struct ChatRendering {
  std::string text;
  /// Byte ranges [begin, end) of the text that {% generation %} blocks gave, in order.
  std::vector<std::pair<std::size_t, std::size_t>> generated;
};

/// ChatTemplate is a template in the part of Jinja that chat templates use
/// (daemon/text/template/README.md), read and rendered as transformers' apply_chat_template does.
/// It comes from strangers, so that its size, its depth and what rendering takes are bounded.
/// Immutable: several threads may render it.
class ChatTemplate {
 public:
  /// `origin` (a file's name) begins every error, with the line. Throws InvalidArgument
  /// (TEMPLATE_SYNTAX) for what is no template, Unimplemented (NOT_OFFERED) for what Jinja has and
  /// this language has not, and ResourceExhausted (TOKENIZER_LIMIT) for what is too large or too
  /// deep.
  ChatTemplate(std::string_view source, std::string origin);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  /// `variables` is an object: messages, add_generation_prompt, bos_token, eos_token, tools, ... by
  /// name. `now` is what strftime_now tells, in seconds of UTC. `budget` pays for the steps and the
  /// text: Budget::of_text(bytes of the conversation, stop) is many times what a template of any
  /// use takes. Throws InvalidArgument: TEMPLATE_RAISED with the message that the template gives
  /// to raise_exception(), TEMPLATE_ERROR for what Python refuses, too; and ResourceExhausted
  /// (TOKENIZER_LIMIT) where a bound (depth, steps, bytes) is exceeded.
  ChatRendering render(const nlohmann::ordered_json& variables, std::int64_t now,
                       Budget& budget) const;

  /// Tells whether it has {% generation %}.
  bool marks_generation() const;

 private:
  struct Parsed;
  std::unique_ptr<const Parsed> parsed_;
};

}  // namespace meshloom::text
