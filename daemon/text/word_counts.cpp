// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/word_counts.h"

#include <algorithm>
#include <map>
#include <utility>

namespace meshloom::text {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 16;

}  // namespace

std::string_view WordCounts::keep(std::string_view word) {
  if (texts_.empty() || texts_.back().capacity() - texts_.back().size() < word.size()) {
    texts_.emplace_back();
    texts_.back().reserve(std::max(kBlockBytes, word.size()));
  }
  // A block has room for the word, so that words in it stay where they are.
  std::string& block = texts_.back();
  block += word;
  return std::string_view(block).substr(block.size() - word.size());
}

void WordCounts::add(std::string_view word, std::int64_t count) {
  total_ += count;
  if (const auto at = counts_.find(word); at != counts_.end()) {
    at->second += count;
    return;
  }
  counts_.emplace(keep(word), count);
  bytes_ += bytes_of(word);
}

void WordCounts::forget_rarest(std::uint64_t most_bytes) {
  if (bytes_ <= most_bytes) return;
  std::map<std::int64_t, std::uint64_t> bytes_by_count;
  for (const auto& [word, count] : counts_) bytes_by_count[count] += bytes_of(word);
  std::uint64_t left = bytes_;
  std::int64_t rare = 0;
  for (const auto& [count, bytes] : bytes_by_count) {
    if (left <= most_bytes) break;
    left -= bytes;
    rare = count;
  }
  WordCounts kept;
  for (const auto& [word, count] : counts_) {
    if (count > rare)
      kept.add(word, count);
    else
      forgotten_ += count;
  }
  texts_ = std::move(kept.texts_);
  counts_ = std::move(kept.counts_);
  bytes_ = kept.bytes_;
}

std::vector<CountedWord> WordCounts::words() const {
  std::vector<CountedWord> words;
  words.reserve(counts_.size());
  for (const auto& [word, count] : counts_) words.push_back({word, count});
  return words;
}

}  // namespace meshloom::text
