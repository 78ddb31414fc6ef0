// SPDX-License-Identifier: Apache-2.0
// Documents as tokens, in several threads and in their order.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "daemon/text/document_files.h"
#include "daemon/text/tokenizer.h"

namespace meshloom::text {

struct EncodeOptions {
  std::string field = "text";                 ///< of JSON lines
  std::optional<TokenId> end = std::nullopt;  ///< follows every document
  int threads = 1;
  /// Called now and then by the caller's thread with the bytes of text so far; what it throws ends
  /// the work. Empty: never.
  std::function<void(std::uint64_t bytes)> progress = nullptr;
};

/// What was read and what became of it.
struct TokenizeSummary {
  std::int64_t files = 0, documents = 0, tokens = 0;
  std::uint64_t bytes = 0;  ///< of text
  /// Documents with bytes that are no UTF-8, for which the tokenizer read U+FFFD.
  std::int64_t replaced_documents = 0;

  bool operator==(const TokenizeSummary&) const = default;
};

using TokenSink = std::function<void(const std::vector<TokenId>& tokens)>;

/// Gives the tokens of all documents to `sink`, in order, without templates, and the same ones
/// whatever the number of threads. Calls it on the caller's thread with a part of a document, a
/// whole one or several. Throws InvalidArgument (NO_TEXT) naming the files if there are no tokens
/// in them, what `sink` throws, and as for_each_document.
TokenizeSummary encode_documents(const std::vector<DocumentFile>& files, const Tokenizer& tokenizer,
                                 const EncodeOptions& options, const TokenSink& sink);

}  // namespace meshloom::text
