// SPDX-License-Identifier: Apache-2.0
// Files of text as counted words, in several threads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "daemon/text/document_encoder.h"
#include "daemon/text/document_files.h"
#include "daemon/text/word_counts.h"

namespace meshloom::text {

struct WordReading {
  DocumentReading documents = {};
  std::vector<std::string> special = {};  ///< divide the text where they stand in it
  int threads = 1;
  /// The rarest words are forgotten where the words take more bytes than these
  /// (WordCounts::bytes_of).
  std::uint64_t most_bytes = std::uint64_t{1} << 30;
  /// Called about five times a second by the caller's thread with the bytes of text so far; what it
  /// throws ends the work. Empty: never.
  std::function<void(std::uint64_t bytes)> progress = nullptr;
};

struct CountedText {
  WordCounts words;
  TokenizeSummary summary;  ///< its tokens are 0
};

/// Words are what GPT-2's pattern finds, at most 256 bytes of them: what is longer is several. The
/// counts are the same whatever the number of threads. Throws InvalidArgument (NO_TEXT) where there
/// is none, what `progress` throws, and as for_each_document_part.
CountedText count_words(const std::vector<DocumentFile>& files, const WordReading& reading);

}  // namespace meshloom::text
