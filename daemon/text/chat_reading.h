// SPDX-License-Identifier: Apache-2.0
// ChatReading: how lines of conversations become texts, and which of them is learnt.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/text/chat_renderer.h"
#include "daemon/text/conversation.h"
#include "daemon/text/document_files.h"
#include "daemon/text/token_ranges.h"
#include "daemon/text/tokenizer.h"

namespace meshloom::text {

struct ChatReading {
  LineKind kind = LineKind::kMessages;
  bool learns_all = false;  ///< else what the assistant says
  /// Null: plain text, of kinds without messages.
  std::shared_ptr<const ChatRenderer> renderer = nullptr;
};

/// ChatText is a conversation as text.
struct ChatText {
  std::string text;
  std::vector<ByteRange> learnt;
  bool has_last_answer_alone = false;  ///< as RenderedChat
  bool has_lone_surrogates = false;    ///< as Conversation
};

/// Goes over the lines of a file of conversations as for_each_json_line does. Throws
/// InvalidArgument (NO_CONVERSATION) for a file of text, too.
void for_each_chat_line(const DocumentFile& file,
                        const std::function<bool(std::string line, std::int64_t number)>& body);

/// Throws as conversation_of_line and ChatRenderer::render, naming the place. Where all is learnt,
/// the text is that of all messages, whatever the template does to earlier answers.
ChatText chat_text_of_line(std::string_view line, const ChatReading& reading,
                           const LinePlace& place, const StopCheck& stop = {});

/// These encode conversations.
struct ChatEncoding {
  const ChatReading& reading;
  const Tokenizer& tokenizer;
  const Template& around;  ///< every conversation; what stands behind is learnt with its answer
};

/// Appends the tokens of a line, with the bits of learned_tokens.h, and returns its text. Throws as
/// chat_text_of_line and tokens_in_ranges, naming the place.
ChatText encode_chat_line(std::string_view line, const ChatEncoding& encoding,
                          const LinePlace& place, WordCache& cache, const StopCheck& stop,
                          std::vector<TokenId>& out);

}  // namespace meshloom::text
