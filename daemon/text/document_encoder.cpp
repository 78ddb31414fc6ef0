// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/document_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <span>
#include <thread>

#include "daemon/base/input_file.h"
#include "daemon/base/utf8.h"
#include "kernels/base/error.h"

namespace meshloom::text {
namespace {

/// Text that is held at once for each thread, and for all of them at most: progress is told, and
/// may end the work, between two batches.
constexpr std::uint64_t kThreadBytes = std::uint64_t{4} << 20;
constexpr std::uint64_t kMostBatchBytes = std::uint64_t{64} << 20;

/// What is read of a file at once, and about the size of a part of its document.
constexpr std::uint64_t kPartBytes = std::uint64_t{1} << 20;

/// A document, or a part of one that has its tokens by itself.
struct DocumentPart {
  std::string text;
  bool is_last = true;  ///< of its document
};

struct Encoded {
  std::vector<TokenId> tokens;
  bool is_replaced = false;  ///< U+FFFD was read for some bytes
};

/// Encodes texts in several threads, each with a cache of its own.
class ParallelEncoder {
 public:
  ParallelEncoder(const Tokenizer& tokenizer, int threads)
      : tokenizer_(tokenizer), caches_(static_cast<std::size_t>(std::max(threads, 1))) {}

  /// Throws what the first thread that failed threw.
  std::vector<Encoded> encode(const std::vector<DocumentPart>& parts) {
    std::vector<Encoded> encoded(parts.size());
    std::atomic<std::size_t> next = 0;
    std::vector<std::exception_ptr> errors(caches_.size());
    const auto work = [&](std::size_t thread) {
      try {
        for (std::size_t i; (i = next++) < parts.size();)
          encode(parts[i].text, caches_[thread], encoded[i]);
      } catch (...) {
        errors[thread] = std::current_exception();
        next = parts.size();
      }
    };
    {
      std::vector<std::jthread> threads;
      for (std::size_t i = 1; i < std::min(caches_.size(), parts.size()); ++i)
        threads.emplace_back(work, i);
      work(0);
    }
    for (const std::exception_ptr& error : errors)
      if (error) std::rethrow_exception(error);
    return encoded;
  }

 private:
  void encode(const std::string& text, WordCache& cache, Encoded& out) const {
    out.is_replaced = !tokenizer_.reads_any_bytes() && !base::is_utf8(text);
    tokenizer_.encode(text, false, cache, out.tokens);
  }

  const Tokenizer& tokenizer_;
  std::vector<WordCache> caches_;
};

/// Parts of documents, encoded when there are enough of them.
class PartBatch {
 public:
  PartBatch(const Tokenizer& tokenizer, const EncodeOptions& options, const TokenSink& sink)
      : options_(options),
        sink_(sink),
        encoder_(tokenizer, options.threads),
        batch_bytes_(
            std::min(kThreadBytes * static_cast<std::uint64_t>(std::max(options.threads, 1)),
                     kMostBatchBytes)) {}

  const TokenizeSummary& summary() const { return summary_; }
  void begin_file() { ++summary_.files; }

  void add(DocumentPart part) {
    summary_.bytes += part.text.size();
    // Documents of a few bytes take more memory than their text.
    held_ += part.text.size() + sizeof(part) + sizeof(Encoded);
    parts_.push_back(std::move(part));
    if (held_ >= batch_bytes_) flush();
  }

  /// A line whose text may be nothing: whoever wants to stop is asked in time.
  void line_read(std::size_t bytes) {
    read_ += bytes;
    if (read_ < batch_bytes_) return;
    read_ = 0;
    if (options_.progress) options_.progress(summary_.bytes);
  }

  void flush() {
    std::vector<Encoded> encoded = encoder_.encode(parts_);
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      is_replaced_ = is_replaced_ || encoded[i].is_replaced;
      if (parts_[i].is_last) {
        if (options_.end) encoded[i].tokens.push_back(*options_.end);
        ++summary_.documents;
        summary_.replaced_documents += is_replaced_;
        is_replaced_ = false;
      }
      summary_.tokens += static_cast<std::int64_t>(encoded[i].tokens.size());
      sink_(encoded[i].tokens);
    }
    parts_.clear();
    held_ = 0;
    if (options_.progress) options_.progress(summary_.bytes);
  }

 private:
  const EncodeOptions& options_;
  const TokenSink& sink_;
  ParallelEncoder encoder_;
  const std::uint64_t batch_bytes_;
  std::vector<DocumentPart> parts_;
  std::uint64_t held_ = 0;
  std::uint64_t read_ = 0;    ///< of lines since the last look
  bool is_replaced_ = false;  ///< of the document so far
  TokenizeSummary summary_;
};

/// Gives out the text of a file in parts.
void for_each_part(const DocumentFile& document, const TextCuts& cuts,
                   const std::function<void(DocumentPart)>& body) {
  const base::InputFile file(document.path);
  std::string text;
  for (std::uint64_t at = 0; at < file.size();) {
    const std::size_t looked_at = text.size();
    text.resize(looked_at + std::min(kPartBytes, file.size() - at));
    file.read(at, std::as_writable_bytes(std::span(text).subspan(looked_at)));
    at += text.size() - looked_at;
    if (at == file.size()) break;
    // The last character was looked at without all that follows it.
    if (const auto cut = last_cut(text, looked_at > 4 ? looked_at - 4 : 0, cuts)) {
      std::string rest = text.substr(*cut);
      text.resize(*cut);
      body({std::move(text), false});
      text = std::move(rest);
    } else if (text.size() > kMostDocumentBytes) {
      throw InvalidArgument(
          fmt::format("{} has no place to divide it in {} bytes, from byte {} on: divide it, or "
                      "make it .jsonl",
                      document.path.string(), text.size(), at - text.size()),
          "FILE_TOO_LARGE", {{"path", document.path.string()}});
    }
  }
  if (file.size() > 0) body({std::move(text), true});
}

[[noreturn]] void throw_no_text(const std::vector<DocumentFile>& files, const std::string& field,
                                const TokenizeSummary& summary) {
  const DocumentFile& first = files.front();
  const std::string more =
      files.size() > 1 ? fmt::format(" and {} more", files.size() - 1) : std::string();
  const std::string why = summary.documents > 0
                              ? fmt::format("{} bytes of text make no token", summary.bytes)
                          : first.format == DocumentFormat::kJsonLines
                              ? fmt::format("there is no text under \"{}\"", field)
                              : std::string("there is no text");
  throw InvalidArgument(fmt::format("{}{}: {}", first.path.string(), more, why), "NO_TEXT",
                        {{"path", first.path.string()}});
}

}  // namespace

TokenizeSummary encode_documents(const std::vector<DocumentFile>& files, const Tokenizer& tokenizer,
                                 const EncodeOptions& options, const TokenSink& sink) {
  PartBatch batch(tokenizer, options, sink);
  for (const DocumentFile& file : files) {
    batch.begin_file();
    const TextCuts cuts = tokenizer.cuts();
    if (file.format == DocumentFormat::kText && cuts.any())
      for_each_part(file, cuts, [&](DocumentPart part) { batch.add(std::move(part)); });
    else
      for_each_document(
          file, options.field,
          [&](std::string text) {
            batch.add({std::move(text), true});
          },
          [&](std::size_t bytes) { batch.line_read(bytes); });
  }
  batch.flush();
  if (batch.summary().tokens == 0) throw_no_text(files, options.field, batch.summary());
  return batch.summary();
}

}  // namespace meshloom::text
