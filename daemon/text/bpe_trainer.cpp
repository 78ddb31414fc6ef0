// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/bpe_trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <queue>
#include <span>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "daemon/base/utf8.h"
#include "daemon/text/bpe.h"
#include "daemon/text/utf8.h"
#include "kernels/base/error.h"

namespace meshloom::text {
namespace {

constexpr std::int64_t kBytes = 256;
constexpr std::size_t kLongestSpecial = 256;
/// Of all tokens, as a tokenizer.json may have it (VocabularyLimits).
constexpr std::size_t kMostTokenBytes = std::size_t{32} << 20;

using Symbol = std::uint32_t;

/// Two symbols that stand side by side, as one number.
using PairKey = std::uint64_t;
constexpr PairKey key_of(Symbol first, Symbol second) { return PairKey{first} << 32 | second; }
constexpr Symbol first_of(PairKey key) { return static_cast<Symbol>(key >> 32); }
constexpr Symbol second_of(PairKey key) { return static_cast<Symbol>(key); }

struct KeyHash {
  std::size_t operator()(PairKey key) const {
    key = (key ^ key >> 32) * 0x9E3779B97F4A7C15u;
    return key ^ key >> 29;
  }
};

struct TrainedWord {
  std::size_t begin = 0;     ///< in the symbols of all words
  std::uint32_t length = 0;  ///< symbols that are left
  std::int64_t count = 0;
};

struct PairCount {
  std::int64_t count = 0;
  std::vector<std::uint32_t> words;  ///< that have it, or had
};

/// A pair with the count that it had when it was put in the queue.
struct Candidate {
  std::int64_t count;
  PairKey pair;

  /// What comes out of the queue later.
  bool operator<(const Candidate& other) const {
    return std::tuple(count, other.pair) < std::tuple(other.count, pair);
  }
};

/// The bytes in the order in which GPT-2's alphabet has them.
std::array<unsigned char, kBytes> bytes_by_character() {
  std::array<unsigned char, kBytes> bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(i);
  std::sort(bytes.begin(), bytes.end(), [](unsigned char a, unsigned char b) {
    return byte_level_char(a) < byte_level_char(b);
  });
  return bytes;
}

class Trainer {
 public:
  Trainer(const std::vector<CountedWord>& words, const BpeTraining& training)
      : training_(training), special_(training.special.begin(), training.special.end()) {
    trained_.tokens = training.special;
    add_words(words);
  }

  TrainedBpe train(const TrainingProgress& progress) {
    while (static_cast<std::int64_t>(trained_.tokens.size()) < training_.vocab_size) {
      const auto pair = next_pair();
      if (!pair || token_bytes_ > kMostTokenBytes) break;
      merge(*pair);
      if (progress) progress(static_cast<std::int64_t>(trained_.tokens.size()));
    }
    for (const TrainedWord& word : words_)
      trained_.text_tokens += word.count * static_cast<std::int64_t>(word.length);
    return std::move(trained_);
  }

 private:
  void add_words(const std::vector<CountedWord>& words) {
    std::array<Symbol, kBytes> symbol_of;
    for (const unsigned char byte : bytes_by_character()) {
      symbol_of[byte] = static_cast<Symbol>(trained_.tokens.size());
      trained_.tokens.push_back(to_byte_level({reinterpret_cast<const char*>(&byte), 1}));
    }
    for (std::size_t id = 0; id < trained_.tokens.size(); ++id)
      ids_.emplace(trained_.tokens[id], static_cast<Symbol>(id));
    std::size_t bytes = 0;
    for (const CountedWord& word : words) bytes += word.text.size();
    symbols_.reserve(bytes);
    words_.reserve(words.size());
    for (const CountedWord& word : words) {
      words_.push_back({symbols_.size(), static_cast<std::uint32_t>(word.text.size()), word.count});
      for (const char byte : word.text)
        symbols_.push_back(symbol_of[static_cast<unsigned char>(byte)]);
    }
    for (std::uint32_t w = 0; w < words_.size(); ++w)
      for (std::size_t i = 0; i + 1 < words_[w].length; ++i)
        change(symbols_of(words_[w])[i], symbols_of(words_[w])[i + 1], words_[w].count, w);
    queue_grown();
  }

  std::span<Symbol> symbols_of(const TrainedWord& word) {
    return std::span(symbols_).subspan(word.begin, word.length);
  }

  /// A pair of a word is there so often more, or less.
  void change(Symbol first, Symbol second, std::int64_t by, std::uint32_t word) {
    const PairKey key = key_of(first, second);
    PairCount& pair = pairs_[key];
    pair.count += by;
    if (by < 0) return;
    if (pair.words.empty() || pair.words.back() != word) pair.words.push_back(word);
    grown_.insert(key);
  }

  /// A count in the queue may be too large, never too small.
  void queue_grown() {
    for (const PairKey key : grown_) queue_.push({pairs_[key].count, key});
    grown_.clear();
  }

  /// The most frequent pair that may be merged, if there is one.
  std::optional<PairKey> next_pair() {
    while (!queue_.empty()) {
      const Candidate best = queue_.top();
      if (best.count < std::max<std::int64_t>(training_.min_frequency, 1)) return std::nullopt;
      queue_.pop();
      const std::int64_t count = pairs_[best.pair].count;
      if (count != best.count) {
        if (count > 0) queue_.push({count, best.pair});
        continue;
      }
      if (!special_.contains(joined(best.pair))) return best.pair;
    }
    return std::nullopt;
  }

  std::string joined(PairKey pair) const {
    return trained_.tokens[first_of(pair)] + trained_.tokens[second_of(pair)];
  }

  void merge(PairKey key) {
    std::string text = joined(key);
    // Two pairs may make one text, which is one token.
    const auto [at, is_new] = ids_.emplace(text, static_cast<Symbol>(trained_.tokens.size()));
    if (is_new) {
      token_bytes_ += text.size();
      trained_.tokens.push_back(std::move(text));
    }
    trained_.merges.emplace_back(static_cast<TokenId>(first_of(key)),
                                 static_cast<TokenId>(second_of(key)));
    PairCount& pair = pairs_[key];
    const std::vector<std::uint32_t> words = std::move(pair.words);
    pair.words.clear();
    for (const std::uint32_t word : words) merge_in(word, key, at->second);
    queue_grown();
  }

  /// From left to right, without overlap. A word without the pair stays as it is.
  void merge_in(std::uint32_t index, PairKey key, Symbol made) {
    TrainedWord& word = words_[index];
    const std::span<Symbol> symbols = symbols_of(word);
    const Symbol first = first_of(key), second = second_of(key);
    std::size_t to = 0;
    for (std::size_t from = 0; from < symbols.size(); ++from, ++to) {
      const bool is_pair =
          symbols[from] == first && from + 1 < symbols.size() && symbols[from + 1] == second;
      if (!is_pair) {
        symbols[to] = symbols[from];
        continue;
      }
      change(first, second, -word.count, index);
      if (to > 0) replace(symbols[to - 1], first, symbols[to - 1], made, index);
      if (from + 2 < symbols.size())
        replace(second, symbols[from + 2], made, symbols[from + 2], index);
      symbols[to] = made;
      ++from;
    }
    word.length = static_cast<std::uint32_t>(to);
  }

  /// In a word one pair takes the place of another.
  void replace(Symbol first, Symbol second, Symbol new_first, Symbol new_second,
               std::uint32_t word) {
    change(first, second, -words_[word].count, word);
    change(new_first, new_second, words_[word].count, word);
  }

  const BpeTraining& training_;
  const std::unordered_set<std::string> special_;
  TrainedBpe trained_;
  std::size_t token_bytes_ = 0;
  std::unordered_map<std::string, Symbol> ids_;
  std::vector<Symbol> symbols_;
  std::vector<TrainedWord> words_;
  std::unordered_map<PairKey, PairCount, KeyHash> pairs_;
  std::priority_queue<Candidate> queue_;
  std::unordered_set<PairKey, KeyHash> grown_;  ///< pairs whose count has grown
};

void check_special(const std::string& token) {
  const auto refuse = [&](const std::string& why) {
    throw InvalidArgument(fmt::format("special token \"{}\" {}",
                                      base::printable_text(token, kLongestSpecial, false), why));
  };
  if (token.empty()) refuse("is empty");
  if (token.size() > kLongestSpecial)
    refuse(fmt::format("has {} bytes, at most {} are allowed", token.size(), kLongestSpecial));
  if (!base::is_utf8(token)) refuse("is no UTF-8");
  const char* at = token.data();
  const bool is_byte = byte_level_byte(next_char(at)).has_value();
  if (is_byte && at == token.data() + token.size())
    refuse("is a byte of the alphabet: give it a second character");
}

}  // namespace

void check_training(const BpeTraining& training) {
  const auto special = static_cast<std::int64_t>(training.special.size());
  const std::int64_t least = kBytes + special;
  check(training.vocab_size >= least,
        "the vocabulary is to have {} tokens, at least {} are needed: {} bytes and {} special "
        "tokens",
        training.vocab_size, least, kBytes, special);
  check(training.vocab_size < kMostTokens,
        "the vocabulary is to have {} tokens, at most {} are allowed", training.vocab_size,
        kMostTokens - 1);
  std::unordered_set<std::string_view> seen;
  for (const std::string& token : training.special) {
    check_special(token);
    check(seen.insert(token).second, "special token \"{}\" is given twice",
          base::printable_text(token, kLongestSpecial, false));
  }
}

TrainedBpe train_bpe(const std::vector<CountedWord>& words, const BpeTraining& training,
                     const TrainingProgress& progress) {
  check_training(training);
  return Trainer(words, training).train(progress);
}

}  // namespace meshloom::text
