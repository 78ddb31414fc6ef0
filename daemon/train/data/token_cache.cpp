// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/data/token_cache.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <span>
#include <thread>

#include "daemon/base/file_stamp.h"
#include "daemon/base/files.h"
#include "daemon/base/input_file.h"
#include "daemon/base/sha256.h"
#include "daemon/text/token_file.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kExtension = ".tokens";
constexpr std::size_t kReadBytes = std::size_t{4} << 20;
constexpr std::chrono::milliseconds kLockPause{100};

/// Sizes and times of files: other ones once somebody has written to them.
std::string stamps_of(const std::vector<text::DocumentFile>& files) {
  std::string stamps;
  for (const text::DocumentFile& file : files) {
    const auto stamp = base::file_stamp(file.path);
    if (!stamp) base::throw_input_error("cannot look at", file.path, errno);
    stamps += *stamp + "\n";
  }
  return stamps;
}

std::string digest_of_text(const TokenCache::Text& text, const std::function<void()>& alive) {
  base::Sha256 digest;
  const auto update = [&](const std::string& part) {
    digest.update(std::as_bytes(std::span(part)));
  };
  update(text.identity);
  // The same tokens, but of text that others refuse.
  if (text.encode.reading.skips_lines_without_text) update("\nskips lines");
  std::vector<std::byte> part(kReadBytes);
  for (const text::DocumentFile& document : text.files) {
    const base::InputFile file(document.path);
    const bool is_lines = document.format == text::DocumentFormat::kJsonLines;
    update(fmt::format("\n{} {}\n", is_lines ? "jsonl" : "text", file.size()));
    for (std::uint64_t at = 0; at < file.size(); at += kReadBytes) {
      alive();
      const auto bytes = std::span(part).first(
          static_cast<std::size_t>(std::min<std::uint64_t>(kReadBytes, file.size() - at)));
      file.read(at, bytes);
      digest.update(bytes);
    }
  }
  return digest.hex();
}

/// Waits for other processes; `alive` may throw meanwhile.
base::UniqueFd locked(const fs::path& folder, const std::function<void()>& alive) {
  const fs::path path = folder / "lock";
  base::UniqueFd fd = base::open_output(path, O_RDWR | O_CREAT, 0600);
  while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) base::throw_io_error("cannot lock", path, errno);
    alive();
    std::this_thread::sleep_for(kLockPause);
  }
  return fd;
}

/// A file that is whole, as far as its header and size say; one that is not is removed. One that
/// cannot be looked at now is an error of the call: it may be whole.
bool is_there(const fs::path& path) {
  std::error_code error;
  try {
    text::TokenFile file(path);
  } catch (const NotFound&) {
    return false;
  } catch (const InvalidArgument&) {
    fs::remove(path, error);
    return false;
  }
  fs::last_write_time(path, fs::file_time_type::clock::now(), error);
  return true;
}

}  // namespace

TokenCache::TokenCache(fs::path folder, std::uint64_t most_bytes)
    : folder_(std::move(folder)), most_bytes_(most_bytes) {}

void TokenCache::make_room(std::uint64_t bytes) const {
  struct Kept {
    fs::path path;
    fs::file_time_type used;
    std::uint64_t bytes = 0;
  };
  std::vector<Kept> kept;
  std::uint64_t all = bytes;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    std::error_code error;
    if (entry.path().extension() != kExtension) continue;
    kept.push_back({entry.path(), entry.last_write_time(error), entry.file_size(error)});
    all += kept.back().bytes;
  }
  std::sort(kept.begin(), kept.end(), [](const Kept& a, const Kept& b) { return a.used < b.used; });
  for (const Kept& file : kept) {
    if (all <= most_bytes_) return;
    if (std::find(given_.begin(), given_.end(), file.path) != given_.end()) continue;
    std::error_code ignored;
    fs::remove(file.path, ignored);
    all -= file.bytes;
  }
}

fs::path TokenCache::get(const Text& text, const Progress& progress) {
  std::uint64_t total = 0;
  for (const text::DocumentFile& file : text.files) total += base::InputFile(file.path).size();
  const auto alive = [&] { progress(0, total); };
  alive();
  fs::create_directories(folder_);
  const std::string stamps = stamps_of(text.files);
  const fs::path path = folder_ / (digest_of_text(text, alive) + kExtension);
  const base::UniqueFd lock = locked(folder_, alive);
  if (!is_there(path)) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder_))
      if (entry.path().extension() == ".new") fs::remove(entry.path(), ignored);
    make_room(std::min(total, most_bytes_));
    const auto told = [&](std::uint64_t bytes) {
      progress(bytes, total);
      if (stamps_of(text.files) != stamps)
        throw FailedPrecondition("files of text change while they are tokenized", "DATA_CHANGED");
    };
    text::TokenFileOptions options{text.encode};
    options.encode.progress = told;
    const std::int64_t most = text::tokens_of_file(most_bytes_);
    const bool is_less = most < options.most_tokens;
    if (is_less) options.most_tokens = most;
    try {
      text::write_token_file(text.files, *text.tokenizer, options, path);
    } catch (const text::TooManyTokens&) {
      if (!is_less) throw;
      throw ResourceExhausted(
          fmt::format("{} bytes of text are more than {} tokens, which take more than the {} "
                      "bytes that the daemon keeps of tokens (token_cache_bytes)",
                      total, most, most_bytes_),
          "TOKEN_CACHE_FULL", {{"limit", std::to_string(most_bytes_)}});
    }
    progress(total, total);
  }
  given_.push_back(path);
  make_room(0);
  return path;
}

}  // namespace meshloom::train
