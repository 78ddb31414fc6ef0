// SPDX-License-Identifier: Apache-2.0
// Documents as tokens, in several threads and in their order.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "daemon/text/chat_reading.h"
#include "daemon/text/document_files.h"
#include "daemon/text/tokenizer.h"

namespace meshloom::text {

struct EncodeOptions {
  DocumentReading reading = {};     ///< a tokenizer that reads any bytes gets them as they are
  bool add_special_tokens = false;  ///< those of the template stand around every document
  /// Follows every document, unless the template's tokens end in it.
  std::optional<TokenId> end = std::nullopt;
  /// Lines of JSON are conversations, whose tokens have the bits of learned_tokens.h; files of text
  /// are refused.
  std::optional<ChatReading> chat = std::nullopt;
  int threads = 1;
  /// Called now and then by the caller's thread with the bytes of text so far, also where a single
  /// document takes long; what it throws ends the work in all threads. Empty: never.
  std::function<void(std::uint64_t bytes)> progress = nullptr;
};

/// The summary says what was read and what became of it.
struct TokenizeSummary {
  std::int64_t files = 0, documents = 0, tokens = 0;
  std::uint64_t bytes = 0;  ///< of text
  /// Documents with bytes that are no UTF-8, for which the tokenizer read U+FFFD, or with halves of
  /// surrogate pairs in a line of JSON.
  std::int64_t replaced_documents = 0;
  std::int64_t skipped_lines = 0;  ///< of JSON, that hold no text
  // For conversations these count the tokens that are learnt, and the conversations whose last
  // answer alone is learnt (RenderedChat).
  std::int64_t learnt_tokens = 0, last_answers_alone = 0;

  bool operator==(const TokenizeSummary&) const = default;
};

using TokenSink = std::function<void(const std::vector<TokenId>& tokens)>;

/// Gives the tokens of all documents to `sink`, in order, and the same ones whatever the number of
/// threads. Calls it on the caller's thread with a part of a document, a
/// whole one or several. Throws InvalidArgument (NO_TEXT) naming the files if there are no tokens
/// in them, what `sink` throws, and as for_each_document, chat_text_of_line and Budget::spend: each
/// document, or part of one, has a budget of its own.
TokenizeSummary encode_documents(const std::vector<DocumentFile>& files, const Tokenizer& tokenizer,
                                 const EncodeOptions& options, const TokenSink& sink);

}  // namespace meshloom::text
