// SPDX-License-Identifier: Apache-2.0
// TokenCache: files of tokens that were made of text, kept by what they were made of.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "daemon/text/document_encoder.h"
#include "daemon/text/document_files.h"
#include "daemon/text/tokenizer.h"

namespace meshloom::train {

/// TokenCache is a folder of files DIGEST.tokens as text::write_token_file writes them. DIGEST is a
/// SHA-256 over the contents of all files of text in their order and over `identity`. One process
/// writes at a time, others wait. A file has its name once it is whole and on disk; what a killed
/// writer left is removed by the next one.
class TokenCache {
 public:
  /// All files together take at most `most_bytes`: those that were used longest ago are removed for
  /// new ones, but for those that this object has given out. A file that somebody reads may be
  /// removed: it is there until it is closed.
  TokenCache(std::filesystem::path folder, std::uint64_t most_bytes);

  struct Text {
    std::vector<text::DocumentFile> files;
    const text::Tokenizer* tokenizer = nullptr;
    text::EncodeOptions encode;  ///< without progress
    std::string identity;        ///< of the tokenizer and what of `encode` decides about tokens
  };
  /// Progress is told the part of the work that is done; what it throws ends the work, and nothing
  /// is left.
  using Progress = std::function<void(std::uint64_t bytes, std::uint64_t total_bytes)>;

  /// Returns the file of tokens, made if it is not there. Throws FailedPrecondition (DATA_CHANGED)
  /// if a file of text changes meanwhile, ResourceExhausted (TOKEN_CACHE_FULL, DISK_FULL), and as
  /// text::write_token_file.
  std::filesystem::path get(const Text& text, const Progress& progress);

 private:
  void make_room(std::uint64_t bytes) const;

  std::filesystem::path folder_;
  std::uint64_t most_bytes_;
  std::vector<std::filesystem::path> given_;
};

}  // namespace meshloom::train
