// SPDX-License-Identifier: Apache-2.0
// WordCounts: how often each word of a text is there, in a bounded amount of memory.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace meshloom::text {

struct CountedWord {
  std::string_view text;
  std::int64_t count = 0;
};

class WordCounts {
 public:
  /// Returns the bytes that a word takes here and in a trainer that is given it (BpeTrainer).
  static std::uint64_t bytes_of(std::string_view word) { return 96 + 16 * word.size(); }

  void add(std::string_view word, std::int64_t count);
  /// Returns the sum of all counts that were added, those of forgotten words as well.
  std::int64_t total() const { return total_; }
  std::int64_t distinct() const { return static_cast<std::int64_t>(counts_.size()); }
  std::uint64_t bytes() const { return bytes_; }
  /// Forgets the rarest words, and no word with more than those, until they take at most so many
  /// bytes. Depends on what was added and not on its order.
  void forget_rarest(std::uint64_t most_bytes);
  /// Returns how often the words were there that are forgotten.
  std::int64_t forgotten() const { return forgotten_; }

  /// Returns the words in any order; the texts live as long as nothing is added or forgotten.
  std::vector<CountedWord> words() const;

 private:
  std::string_view keep(std::string_view word);

  std::deque<std::string> texts_;  ///< blocks that the words lie in
  std::unordered_map<std::string_view, std::int64_t> counts_;
  std::uint64_t bytes_ = 0;
  std::int64_t total_ = 0, forgotten_ = 0;
};

}  // namespace meshloom::text
