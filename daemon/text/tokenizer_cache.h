// SPDX-License-Identifier: Apache-2.0
// TokenizerCache: tokenizers that were opened a moment ago.
#pragma once

#include <deque>
#include <filesystem>
#include <mutex>
#include <string>

#include "daemon/text/tokenizer_folder.h"

namespace meshloom::text {

/// Opening a large vocabulary takes a second, and every request for text needs it. Any thread may
/// call it.
class TokenizerCache {
 public:
  static constexpr std::size_t kKept = 4;

  /// Opens a tokenizer as open_tokenizer does; gives the one that it opened before while the
  /// folder's files have the same sizes and times.
  FolderTokenizer open(const std::filesystem::path& folder, const StopCheck& stop = {});

 private:
  struct Kept {
    std::string key;
    FolderTokenizer tokenizer;
  };
  std::mutex mutex_;
  std::deque<Kept> kept_;  ///< used last comes first
};

}  // namespace meshloom::text
