// SPDX-License-Identifier: Apache-2.0
// Bpe: byte-pair encoding of one piece of text, and a cache of the words that it met.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/text/merge_table.h"
#include "daemon/text/vocabulary.h"

namespace meshloom::text {

struct BpeOptions {
  std::string unknown = {};             ///< token of what the vocabulary has not; empty: left out
  std::string continuing_prefix = {};   ///< of every character but a word's first
  std::string end_of_word_suffix = {};  ///< of a word's last character
  bool fuse_unknown = false;            ///< unknown characters in a row are one token
  bool byte_fallback = false;           ///< bytes as "<0x0A>" before unknown
  bool ignore_merges = false;           ///< a word that is a token is that token
  bool byte_level = false;              ///< characters are bytes in GPT-2's alphabet
};

/// An encoder of one thread keeps the tokens of short words here, in a fixed amount of memory (3.75
/// MiB). A word takes the place of another one with the same hash.
class WordCache {
 public:
  static constexpr std::size_t kLongest = 24;    ///< bytes of a word that is kept
  static constexpr std::size_t kMostTokens = 8;  ///< of a word that is kept

  struct Entry {
    std::uint8_t length = 0;  ///< 0: unused
    std::uint8_t count = 0;
    std::array<char, kLongest> word;
    std::array<TokenId, kMostTokens> tokens;
  };

  WordCache() : entries_(std::size_t{1} << 16) {}
  /// Returns the place of a word that has from 1 to kLongest bytes.
  Entry& place_of(std::string_view word);

 private:
  std::vector<Entry> entries_;
};

class Bpe {
 public:
  Bpe(Vocabulary vocabulary, const std::vector<std::pair<std::string, std::string>>& merges,
      const BpeOptions& options, Budget& budget);

  const Vocabulary& vocabulary() const { return vocabulary_; }
  const BpeOptions& options() const { return options_; }

  /// Appends the tokens of `word`, valid UTF-8 and not empty. With byte_level its bytes are
  /// encoded as they are: nobody has put them into the alphabet. Const but for the cache.
  void encode(std::string_view word, WordCache& cache, Budget& budget,
              std::vector<TokenId>& out) const;

 private:
  void encode_anew(std::string_view word, Budget& budget, std::vector<TokenId>& out) const;
  void add_characters(std::string_view word, Budget& budget, std::vector<TokenId>& symbols) const;

  Vocabulary vocabulary_;
  MergeTable merges_;
  BpeOptions options_;
  std::optional<TokenId> unknown_;
  std::array<TokenId, 256> byte_tokens_;
};

/// Returns the character of a byte in GPT-2's alphabet of bytes: printable characters stand for
/// themselves, the others from U+0100 on.
char32_t byte_level_char(unsigned char byte);
/// Returns the byte that a character stands for, if it is one of the alphabet.
std::optional<unsigned char> byte_level_byte(char32_t c);
/// Writes every byte as its character.
std::string to_byte_level(std::string_view bytes);

}  // namespace meshloom::text
