// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/token_file.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <limits>
#include <span>
#include <thread>

#include "daemon/base/files.h"
#include "kernels/base/error.h"

namespace meshloom::text {
namespace {

namespace fs = std::filesystem;

using Header = std::array<std::int32_t, 256>;
constexpr std::int32_t kMagic = 20240801, kVersion = 7;
constexpr std::int64_t kMostInFile = std::numeric_limits<std::int32_t>::max();
/// Text that is held at once.
constexpr std::uint64_t kBatchBytes = std::uint64_t{32} << 20;

/// Encodes documents in several threads, each with a cache of its own.
class ParallelEncoder {
 public:
  ParallelEncoder(const Tokenizer& tokenizer, int threads)
      : tokenizer_(tokenizer), caches_(static_cast<std::size_t>(std::max(threads, 1))) {}

  /// The tokens of each document. Throws what the first thread that failed threw.
  std::vector<std::vector<TokenId>> encode(const std::vector<std::string>& documents) {
    std::vector<std::vector<TokenId>> tokens(documents.size());
    std::atomic<std::size_t> next = 0;
    std::vector<std::exception_ptr> errors(caches_.size());
    const auto work = [&](std::size_t thread) {
      try {
        for (std::size_t i; (i = next++) < documents.size();)
          tokenizer_.encode(documents[i], false, caches_[thread], tokens[i]);
      } catch (...) {
        errors[thread] = std::current_exception();
        next = documents.size();
      }
    };
    {
      std::vector<std::jthread> threads;
      for (std::size_t i = 1; i < std::min(caches_.size(), documents.size()); ++i)
        threads.emplace_back(work, i);
      work(0);
    }
    for (const std::exception_ptr& error : errors)
      if (error) std::rethrow_exception(error);
    return tokens;
  }

 private:
  const Tokenizer& tokenizer_;
  std::vector<WordCache> caches_;
};

/// PATH.new, which becomes PATH when it is whole, and is removed otherwise.
class TokenWriter {
 public:
  TokenWriter(const fs::path& path, std::int64_t most_tokens)
      : path_(path),
        next_(path.string() + ".new"),
        most_(std::min(most_tokens, kMostInFile)),
        fd_(base::open_output(next_, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0644)) {
    write_header();
  }
  ~TokenWriter() {
    std::error_code ignored;
    if (!is_done_) fs::remove(next_, ignored);
  }
  TokenWriter(const TokenWriter&) = delete;
  TokenWriter& operator=(const TokenWriter&) = delete;

  std::int64_t tokens() const { return tokens_; }

  void write(const std::vector<TokenId>& tokens) {
    tokens_ += static_cast<std::int64_t>(tokens.size());
    if (tokens_ > most_)
      throw ResourceExhausted(
          fmt::format("{}: more than {} tokens do not fit in one file: give fewer files at once",
                      path_.string(), most_),
          "TOO_MANY_TOKENS", {{"path", path_.string()}});
    base::write_all(fd_.get(), std::as_bytes(std::span(tokens)), next_);
  }

  void commit() {
    write_header();
    base::sync_file(fd_.get(), next_);
    base::rename_file(next_, path_);
    is_done_ = true;
    base::sync_folder(path_.has_parent_path() ? path_.parent_path() : fs::path("."));
  }

 private:
  void write_header() {
    Header header{kMagic, kVersion, static_cast<std::int32_t>(tokens_)};
    const auto bytes = std::as_bytes(std::span(header));
    if (tokens_ == 0) return base::write_all(fd_.get(), bytes, next_);
    base::write_all_at(fd_.get(), {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, 0,
                       next_);
  }

  fs::path path_, next_;
  const std::int64_t most_;
  base::UniqueFd fd_;
  std::int64_t tokens_ = 0;
  bool is_done_ = false;
};

}  // namespace

std::int64_t tokens_of_file(std::uint64_t bytes) {
  if (bytes <= sizeof(Header)) return 0;
  return static_cast<std::int64_t>((bytes - sizeof(Header)) / sizeof(TokenId));
}

TokenizeSummary write_token_file(const std::vector<DocumentFile>& files, const Tokenizer& tokenizer,
                                 const TokenizeOptions& options, const fs::path& out) {
  TokenizeSummary summary;
  ParallelEncoder encoder(tokenizer, options.threads);
  TokenWriter writer(out, options.most_tokens);
  std::vector<std::string> batch;
  std::uint64_t held = 0;
  const auto flush = [&] {
    for (std::vector<TokenId>& tokens : encoder.encode(batch)) {
      if (options.end) tokens.push_back(*options.end);
      writer.write(tokens);
    }
    batch.clear();
    held = 0;
    if (options.progress) options.progress(summary.bytes);
  };
  for (const DocumentFile& file : files) {
    ++summary.files;
    for_each_document(file, options.field, [&](std::string document) {
      ++summary.documents;
      summary.bytes += document.size();
      // Documents of a few bytes take more memory than their text.
      held += document.size() + sizeof(document) + sizeof(std::vector<TokenId>);
      batch.push_back(std::move(document));
      if (held >= kBatchBytes) flush();
    });
  }
  flush();
  check(writer.tokens() > 0, "{}: there is no text, of which tokens could be made", out.string());
  summary.tokens = writer.tokens();
  writer.commit();
  return summary;
}

TokenFile::TokenFile(const fs::path& path) : file_(path) {
  Header header{};
  if (file_.size() >= sizeof(header)) file_.read(0, std::as_writable_bytes(std::span(header)));
  const bool is_one = header[0] == kMagic && header[1] == kVersion && header[2] >= 0 &&
                      file_.size() == sizeof(header) + sizeof(TokenId) * std::uint64_t(header[2]);
  check(is_one, "{} is no file of uint32 tokens as \"data tokenize\" writes them", path.string());
  size_ = header[2];
}

std::vector<TokenId> TokenFile::read(std::int64_t begin, std::int64_t count) const {
  std::vector<TokenId> tokens(
      static_cast<std::size_t>(std::clamp<std::int64_t>(size_ - begin, 0, count)));
  file_.read(sizeof(Header) + sizeof(TokenId) * static_cast<std::uint64_t>(begin),
             std::as_writable_bytes(std::span(tokens)));
  return tokens;
}

}  // namespace meshloom::text
