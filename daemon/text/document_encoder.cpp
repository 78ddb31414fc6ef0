// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/document_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "daemon/base/utf8.h"
#include "daemon/text/document_parts.h"
#include "daemon/text/learned_tokens.h"
#include "kernels/base/error.h"

namespace meshloom::text {
namespace {

/// Text that is held at once for each thread, and for all of them at most.
constexpr std::uint64_t kThreadBytes = std::uint64_t{4} << 20;
constexpr std::uint64_t kMostBatchBytes = std::uint64_t{64} << 20;

/// Between two questions whether anybody still wants the tokens.
constexpr std::chrono::milliseconds kPause{200};

struct Encoded {
  std::vector<TokenId> tokens;
  bool is_replaced = false;  ///< U+FFFD was read for some bytes
  // Of a conversation.
  std::size_t chat_bytes = 0;
  bool has_last_answer_alone = false;
};

/// Encodes texts in several threads, each with a cache of its own.
class ParallelEncoder {
 public:
  ParallelEncoder(const Tokenizer& tokenizer, const EncodeOptions& options)
      : tokenizer_(tokenizer),
        chat_(options.chat),
        around_(options.add_special_tokens ? tokenizer.around() : Template{}),
        caches_(static_cast<std::size_t>(std::max(options.threads, 1))) {
    const bool ends = !around_.after.empty() && options.end == around_.after.back();
    if (options.end && !ends) around_.after.push_back(*options.end);
  }

  /// Throws what the first thread that failed threw. `alive` is called by the caller's thread now
  /// and then; what it throws ends the work.
  std::vector<Encoded> encode(const std::vector<DocumentPart>& parts, const StopCheck& alive) {
    std::vector<Encoded> encoded(parts.size());
    std::vector<std::exception_ptr> errors(caches_.size());
    Work work{parts, encoded, errors};
    const std::size_t count = std::min(caches_.size(), parts.size());
    {
      std::vector<std::jthread> threads;
      for (std::size_t i = 1; i < count; ++i) threads.emplace_back([&, i] { run(work, i, {}); });
      run(work, 0, [&, published = Clock::now()]() mutable {
        if (Clock::now() < published + kPause) return;
        published = Clock::now();
        alive();
      });
      wait(work, std::max<std::size_t>(count, 1), alive);
    }
    for (const std::exception_ptr& error : errors)
      if (error) std::rethrow_exception(error);
    return encoded;
  }

 private:
  using Clock = std::chrono::steady_clock;

  /// Ends a thread where another one has failed.
  struct Ended {};

  struct Work {
    const std::vector<DocumentPart>& parts;
    std::vector<Encoded>& encoded;
    std::vector<std::exception_ptr>& errors;  ///< by thread
    std::atomic<std::size_t> next = 0;
    std::atomic<bool> ended = false;
    std::mutex mutex = {};
    std::condition_variable changed = {};
    std::size_t done = 0;  ///< threads

    void fail(std::size_t thread) {
      errors[thread] = std::current_exception();
      ended = true;
      next = parts.size();
    }
  };

  void run(Work& work, std::size_t thread, const StopCheck& alive) {
    const StopCheck stop = [&] {
      if (work.ended) throw Ended();
      if (alive) alive();
    };
    try {
      for (std::size_t i; (i = work.next++) < work.parts.size();)
        encode(work.parts[i], caches_[thread], stop, work.encoded[i]);
    } catch (const Ended&) {
      // Another thread says why.
    } catch (...) {
      work.fail(thread);
    }
    const std::lock_guard lock(work.mutex);
    ++work.done;
    work.changed.notify_all();
  }

  /// For what other threads have not done yet, while somebody may want an end.
  static void wait(Work& work, std::size_t threads, const StopCheck& alive) {
    const auto is_done = [&] { return work.done == threads; };
    std::unique_lock lock(work.mutex);
    while (!work.changed.wait_for(lock, kPause, is_done)) {
      if (work.errors[0]) continue;
      lock.unlock();
      try {
        alive();
      } catch (...) {
        work.fail(0);
      }
      lock.lock();
    }
  }

  void encode(const DocumentPart& part, WordCache& cache, const StopCheck& stop,
              Encoded& out) const {
    if (part.path != nullptr) return encode_line(part, cache, stop, out);
    const auto& [text, has_lone_surrogates] = part.document;
    out.is_replaced =
        has_lone_surrogates || (!tokenizer_.reads_any_bytes() && !base::is_utf8(text));
    if (part.is_first) out.tokens = around_.before;
    Budget budget = Budget::of_text(text.size(), stop);
    tokenizer_.encode(text, false, cache, budget, out.tokens);
    if (part.is_last)
      out.tokens.insert(out.tokens.end(), around_.after.begin(), around_.after.end());
  }

  void encode_line(const DocumentPart& part, WordCache& cache, const StopCheck& stop,
                   Encoded& out) const {
    const ChatText chat = encode_chat_line(part.document.text, {*chat_, tokenizer_, around_},
                                           {*part.path, part.line}, cache, stop, out.tokens);
    out.is_replaced = chat.has_lone_surrogates;
    out.chat_bytes = chat.text.size();
    out.has_last_answer_alone = chat.has_last_answer_alone;
  }

  const Tokenizer& tokenizer_;
  const std::optional<ChatReading>& chat_;
  Template around_;  ///< every document
  std::vector<WordCache> caches_;
};

/// Parts of documents, encoded when there are enough of them.
class PartBatch {
 public:
  PartBatch(const Tokenizer& tokenizer, const EncodeOptions& options, const TokenSink& sink)
      : options_(options),
        sink_(sink),
        encoder_(tokenizer, options),
        batch_bytes_(
            std::min(kThreadBytes * static_cast<std::uint64_t>(std::max(options.threads, 1)),
                     kMostBatchBytes)) {}

  const TokenizeSummary& summary() const { return summary_; }
  void begin_file() { ++summary_.files; }

  void add(DocumentPart part) {
    const std::size_t bytes = part.document.text.size();
    progress_ += bytes;
    if (part.path == nullptr) summary_.bytes += bytes;
    // Documents of a few bytes take more memory than their text.
    held_ += bytes + sizeof(part) + sizeof(Encoded);
    parts_.push_back(std::move(part));
    if (held_ >= batch_bytes_) flush();
  }

  /// A line whose text may be nothing: whoever wants to stop is asked in time.
  void line_read(LineRead line) {
    summary_.skipped_lines += line.is_skipped;
    read_ += line.bytes;
    if (read_ < batch_bytes_) return;
    read_ = 0;
    tell_progress();
  }

  void flush() {
    std::vector<Encoded> encoded = encoder_.encode(parts_, [this] { tell_progress(); });
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      is_replaced_ = is_replaced_ || encoded[i].is_replaced;
      if (parts_[i].is_last) {
        ++summary_.documents;
        summary_.replaced_documents += is_replaced_;
        is_replaced_ = false;
      }
      if (parts_[i].path != nullptr) count_chat(encoded[i]);
      summary_.tokens += static_cast<std::int64_t>(encoded[i].tokens.size());
      sink_(encoded[i].tokens);
    }
    parts_.clear();
    held_ = 0;
    tell_progress();
  }

  void tell_progress() const {
    if (options_.progress) options_.progress(progress_);
  }

 private:
  void count_chat(const Encoded& chat) {
    summary_.bytes += chat.chat_bytes;
    summary_.last_answers_alone += chat.has_last_answer_alone;
    for (const TokenId token : chat.tokens) summary_.learnt_tokens += (token & kNotLearnt) == 0;
  }

  const EncodeOptions& options_;
  const TokenSink& sink_;
  ParallelEncoder encoder_;
  const std::uint64_t batch_bytes_;
  std::vector<DocumentPart> parts_;
  std::uint64_t held_ = 0;
  std::uint64_t progress_ = 0;  ///< bytes of text, or of lines of conversations, so far
  std::uint64_t read_ = 0;      ///< of lines since the last look
  bool is_replaced_ = false;    ///< of the document so far
  TokenizeSummary summary_;
};

void add_lines(const DocumentFile& file, PartBatch& batch) {
  for_each_chat_line(file, [&](std::string line, std::int64_t number) {
    batch.add({{std::move(line)}, true, true, &file.path, number});
    return true;
  });
}

[[noreturn]] void throw_no_text(const std::vector<DocumentFile>& files, const std::string& field,
                                const TokenizeSummary& summary) {
  const DocumentFile& first = files.front();
  const std::string more =
      files.size() > 1 ? fmt::format(" and {} more", files.size() - 1) : std::string();
  const std::string why = summary.documents > 0
                              ? fmt::format("{} bytes of text make no token", summary.bytes)
                          : first.format == DocumentFormat::kJsonLines
                              ? fmt::format("there is no text under \"{}\"{}", field,
                                            summary.skipped_lines > 0 ? " of any line" : "")
                              : std::string("there is no text");
  throw InvalidArgument(fmt::format("{}{}: {}", first.path.string(), more, why), "NO_TEXT",
                        {{"path", first.path.string()}});
}

}  // namespace

TokenizeSummary encode_documents(const std::vector<DocumentFile>& files, const Tokenizer& tokenizer,
                                 const EncodeOptions& options, const TokenSink& sink) {
  PartBatch batch(tokenizer, options, sink);
  DocumentReading reading = options.reading;
  reading.keeps_bytes = reading.keeps_bytes || tokenizer.reads_any_bytes();
  for (const DocumentFile& file : files) {
    batch.begin_file();
    if (options.chat) {
      add_lines(file, batch);
      continue;
    }
    for_each_document_part(
        file, reading, tokenizer.cuts(), [&](DocumentPart part) { batch.add(std::move(part)); },
        [&](LineRead line) { batch.line_read(line); });
  }
  batch.flush();
  if (batch.summary().tokens == 0) throw_no_text(files, reading.field, batch.summary());
  return batch.summary();
}

}  // namespace meshloom::text
