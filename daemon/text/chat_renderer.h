// SPDX-License-Identifier: Apache-2.0
// ChatRenderer: conversations as a tokenizer's chat template renders them, and which of their text
// the assistant says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "daemon/text/chat_template.h"
#include "daemon/text/chat_template_source.h"
#include "daemon/text/special_tokens.h"
#include "daemon/text/token_ranges.h"

namespace meshloom::text {

struct RenderedChat {
  std::string text;
  std::vector<ByteRange> answers;  ///< what the assistant says, in order
  /// Earlier answers are not among them, since the template renders them otherwise once more
  /// messages follow, or renders what the next one follows over them.
  bool has_last_answer_alone = false;
};

/// It is immutable: several threads may use it.
class ChatRenderer {
 public:
  /// `tokens` are the variables bos_token, eos_token and so on; `now` is what strftime_now tells.
  /// Throws as ChatTemplate.
  ChatRenderer(const ChatTemplateSource& source, const NamedTokens& tokens, std::int64_t now);

  /// Renders checked messages (conversation.h). The answers are what {% generation %} blocks give;
  /// of a template without them, what an assistant's message adds to the rendering of those before
  /// it with the beginning of an answer. Throws as ChatTemplate::render, and InvalidArgument
  /// (NO_ANSWER_FOUND) where the rendering without the last answer is no beginning of that with it;
  /// ResourceExhausted (CONVERSATION_TOO_LONG) where there are so many answers that rendering with
  /// and without each takes too much.
  RenderedChat render(const nlohmann::ordered_json& messages, const StopCheck& stop = {}) const;
  /// Renders the text alone, of which nothing is looked for and nothing is left out. Throws as
  /// ChatTemplate::render.
  std::string render_text(const nlohmann::ordered_json& messages, const StopCheck& stop = {}) const;
  /// Renders what an answer follows: the messages, and the beginning of the assistant's turn.
  std::string render_prompt(const nlohmann::ordered_json& messages,
                            const StopCheck& stop = {}) const;
  /// Returns what the template puts behind an answer. Empty where that cannot be told.
  std::string behind_answer(const StopCheck& stop = {}) const;

 private:
  /// The budget, which gets the steps that the messages pay for, is one for all renderings of a
  /// conversation.
  ChatRendering render_all(const nlohmann::ordered_json& messages, bool begins_answer,
                           Budget& budget) const;
  void find_answers(const nlohmann::ordered_json& messages, Budget& budget,
                    RenderedChat* rendered) const;
  /// Returns what an answer follows, where its message and those before it are rendered as `with`.
  /// Of the first of all messages, where the template renders none otherwise or not at all, this is
  /// what stands before its content, which another content shows; all of `with` if it does not show
  /// it.
  std::string before_answer(const nlohmann::ordered_json& messages, std::size_t index,
                            const std::string& with, Budget& budget) const;
  /// Renders the messages up to the last answer, which is that of this index.
  RenderedChat last_answer(const nlohmann::ordered_json& messages, std::size_t last,
                           Budget& budget) const;

  ChatTemplate template_;
  nlohmann::ordered_json variables_;
  std::int64_t now_;
};

}  // namespace meshloom::text
