// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/count_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>

#include "daemon/base/utf8.h"
#include "daemon/text/added_tokens.h"
#include "daemon/text/document_parts.h"
#include "daemon/text/split_scanners.h"
#include "daemon/text/utf8.h"
#include "kernels/base/error.h"

namespace meshloom::text {
namespace {

/// Text that is held at once. Whether words are forgotten is asked behind so much, so that the
/// counts are the same for any number of threads.
constexpr std::uint64_t kBatchBytes = std::uint64_t{8} << 20;

constexpr std::size_t kLongestWord = 256;
constexpr std::chrono::milliseconds kProgressPause{200};

using LocalCounts = std::unordered_map<std::string_view, std::int64_t>;

/// What is found in the text itself, as a tokenizer finds its special tokens.
class SpecialSplit {
 public:
  explicit SpecialSplit(const std::vector<std::string>& special) {
    for (const std::string& text : special)
      tokens_.push_back({.content = text, .normalized = false, .special = true});
    std::vector<const AddedToken*> pointers;
    for (const AddedToken& token : tokens_) pointers.push_back(&token);
    Budget budget = Budget::of_text(special.size() * kLongestWord);
    finder_.emplace(pointers, special, budget);
  }

  void split(std::string_view text, const std::function<void(std::string_view)>& rest) const {
    if (tokens_.empty()) return rest(text);
    Budget budget = Budget::of_text(text.size());
    finder_->split(
        text, budget, [](const AddedToken&) {}, rest);
  }

 private:
  std::vector<AddedToken> tokens_;
  std::optional<TokenFinder> finder_;
};

/// One thread's share of a batch.
struct Share {
  LocalCounts counts;
  std::deque<std::string> texts;  ///< that the words lie in, of parts that were no UTF-8
  std::exception_ptr error;
};

/// Documents with bytes that were read as U+FFFD, by part.
using Replaced = std::vector<char>;

class BatchCounter {
 public:
  explicit BatchCounter(const WordReading& reading)
      : reading_(reading), special_(reading.special) {}

  const TokenizeSummary& summary() const { return summary_; }
  WordCounts take() { return std::move(words_); }
  void begin_file() { ++summary_.files; }

  void add(DocumentPart part) {
    summary_.bytes += part.document.text.size();
    held_ += part.document.text.size() + sizeof(part);
    parts_.push_back(std::move(part));
    if (held_ >= kBatchBytes) flush();
  }

  void line_read(LineRead line) {
    summary_.skipped_lines += line.is_skipped;
    read_ += line.bytes;
    if (read_ < kBatchBytes) return;
    read_ = 0;
    tell_progress();
  }

  void flush() {
    Replaced replaced(parts_.size());
    const std::size_t threads =
        std::min(static_cast<std::size_t>(std::max(reading_.threads, 1)), parts_.size());
    std::vector<Share> shares(threads);
    count(shares, replaced);
    for (const Share& share : shares)
      for (const auto& [word, count] : share.counts) words_.add(word, count);
    // Half of the room is made at once: it is not asked for every batch.
    if (words_.bytes() > reading_.most_bytes) words_.forget_rarest(reading_.most_bytes / 2);
    sum_documents(replaced);
    parts_.clear();
    held_ = 0;
    tell_progress();
  }

 private:
  struct Ended {};

  /// In threads, while the caller's one tells how far it is and whether it is to end.
  void count(std::vector<Share>& shares, Replaced& replaced) {
    std::atomic<std::size_t> next = 0;
    std::atomic<bool> ended = false;
    std::mutex mutex;
    std::condition_variable changed;
    std::size_t done = 0;
    std::vector<std::jthread> threads;
    for (Share& share : shares)
      threads.emplace_back([&] {
        try {
          for (std::size_t i; (i = next++) < parts_.size();)
            replaced[i] = count_part(parts_[i].document, share, ended);
        } catch (const Ended&) {
          // The caller says why.
        } catch (...) {
          share.error = std::current_exception();
          ended = true;
        }
        const std::lock_guard lock(mutex);
        ++done;
        changed.notify_all();
      });
    try {
      std::unique_lock lock(mutex);
      while (!changed.wait_for(lock, kProgressPause, [&] { return done == shares.size(); })) {
        lock.unlock();
        tell_progress();
        lock.lock();
      }
    } catch (...) {
      ended = true;
      throw;
    }
    for (const Share& share : shares)
      if (share.error) std::rethrow_exception(share.error);
  }

  /// Whether U+FFFD was read for some bytes.
  bool count_part(const Document& document, Share& share, const std::atomic<bool>& ended) const {
    std::string storage;
    std::string_view text = valid_utf8(document.text, storage);
    const bool is_replaced = text.data() != document.text.data();
    if (is_replaced) text = share.texts.emplace_back(std::move(storage));
    special_.split(text, [&](std::string_view rest) {
      scan(SplitPattern::kGpt2, {rest}, [&](const Piece& piece) {
        if (ended) throw Ended();
        for (std::string_view word = piece.text; !word.empty();) {
          const std::size_t length = base::utf8_cut(word, kLongestWord);
          ++share.counts[word.substr(0, length)];
          word.remove_prefix(length);
        }
      });
    });
    return is_replaced || document.has_lone_surrogates;
  }

  void sum_documents(const Replaced& replaced) {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      is_replaced_ = is_replaced_ || replaced[i] != 0;
      if (!parts_[i].is_last) continue;
      ++summary_.documents;
      summary_.replaced_documents += is_replaced_;
      is_replaced_ = false;
    }
  }

  void tell_progress() const {
    if (reading_.progress) reading_.progress(summary_.bytes);
  }

  const WordReading& reading_;
  const SpecialSplit special_;
  WordCounts words_;
  TokenizeSummary summary_;
  std::vector<DocumentPart> parts_;
  std::uint64_t held_ = 0;
  std::uint64_t read_ = 0;    ///< of lines since the last look
  bool is_replaced_ = false;  ///< of the document so far
};

}  // namespace

CountedText count_words(const std::vector<DocumentFile>& files, const WordReading& reading) {
  // The pattern splits at both, whatever stands around them.
  constexpr TextCuts kCuts{.before_blank = true, .after_newline = true};
  BatchCounter counter(reading);
  for (const DocumentFile& file : files) {
    counter.begin_file();
    for_each_document_part(
        file, reading.documents, kCuts, [&](DocumentPart part) { counter.add(std::move(part)); },
        [&](LineRead line) { counter.line_read(line); });
  }
  counter.flush();
  TokenizeSummary summary = counter.summary();
  WordCounts words = counter.take();
  if (words.total() == 0)
    throw InvalidArgument(
        fmt::format(
            "there is no text in {}{}", files.front().path.string(),
            files.size() > 1 ? fmt::format(" and {} more files", files.size() - 1) : std::string()),
        "NO_TEXT", {{"path", files.front().path.string()}});
  return {std::move(words), summary};
}

}  // namespace meshloom::text
