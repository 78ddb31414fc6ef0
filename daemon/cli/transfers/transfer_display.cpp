// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/transfers/transfer_display.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "daemon/cli/output/output.h"
#include "daemon/cli/output/terminal.h"

namespace meshloom::cli {
namespace {

constexpr std::chrono::milliseconds kBetween{100};

}  // namespace

void TransferProgress::begin(const std::string& name, std::int64_t size, std::int64_t there,
                             Clock::time_point now) {
  name_ = name;
  size_ = size;
  there_ = there;
  begin_ = now;
  shown_ = {};
}

std::string TransferProgress::rate_text(std::int64_t moved, Clock::time_point now) const {
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  if (moved <= 0 || seconds <= 0) return "";
  return bytes_text(static_cast<std::int64_t>(static_cast<double>(moved) / seconds)) + "/s";
}

std::string TransferProgress::show(std::int64_t done, Clock::time_point now) {
  if (!terminal_ || (shown_ != Clock::time_point{} && now - shown_ < kBetween)) return "";
  shown_ = now;
  const std::int64_t moved = done - there_;
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  const std::string left = moved > 0
                               ? "  left " + duration_text(seconds / static_cast<double>(moved) *
                                                           static_cast<double>(size_ - done))
                               : "";
  const std::string text = fmt::format(" {}  {} of {}  {}{}", name_, bytes_text(done),
                                       bytes_text(size_), rate_text(moved, now), left);
  const int width = std::clamp(columns_ - static_cast<int>(text.size()) - 3, 0, 40);
  if (width < 4)
    return kClearLine + text.substr(0, static_cast<std::size_t>(std::max(columns_ - 1, 1)));
  const auto filled = static_cast<std::size_t>(
      size_ > 0 ? static_cast<double>(done) / static_cast<double>(size_) * width : width);
  return kClearLine + ("[" + std::string(filled, '#')) +
         std::string(static_cast<std::size_t>(width) - filled, '.') + "]" + text;
}

std::string TransferProgress::end(Clock::time_point now) {
  const std::int64_t moved = size_ - there_;
  std::string how = fmt::format("{} already", done_word_);
  if (moved > 0 || size_ == 0) {
    const std::string rate = rate_text(moved, now);
    how = fmt::format("{} {}{}{}", done_word_, bytes_text(moved), rate.empty() ? "" : ", ", rate);
  }
  return fmt::format("{}{}: {}, {}\n", terminal_ ? kClearLine : "", name_, bytes_text(size_), how);
}

TransferDisplay::TransferDisplay(bool quiet, const char* done_word)
    : quiet_(quiet),
      terminal_(is_terminal(STDERR_FILENO)),
      progress_(terminal_, terminal_columns(STDERR_FILENO), done_word) {}

void TransferDisplay::print(const std::string& text) const {
  if (quiet_ || text.empty()) return;
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

void TransferDisplay::begin(const std::string& name, std::int64_t size, std::int64_t there) {
  open_ = true;
  progress_.begin(name, size, there, TransferProgress::Clock::now());
}

void TransferDisplay::show(std::int64_t done) {
  print(progress_.show(done, TransferProgress::Clock::now()));
}

void TransferDisplay::end() {
  print(progress_.end(TransferProgress::Clock::now()));
  open_ = false;
}

void TransferDisplay::clear() {
  if (open_ && terminal_) print(kClearLine);
  open_ = false;
}

}  // namespace meshloom::cli
