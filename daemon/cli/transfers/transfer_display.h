// SPDX-License-Identifier: Apache-2.0
// TransferDisplay shows the progress of transfers on standard error: a bar with rate and time left
// on a terminal, a line a file elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace meshloom::cli {

/// TransferProgress makes text for standard error, as a function of bytes and time alone.
class TransferProgress {
 public:
  using Clock = std::chrono::steady_clock;

  /// `done_word`: "sent" or "received".
  TransferProgress(bool terminal, int columns, const char* done_word)
      : terminal_(terminal), columns_(columns), done_word_(done_word) {}

  /// Begins a file of `size` bytes, of which `there` need not be transferred.
  void begin(const std::string& name, std::int64_t size, std::int64_t there, Clock::time_point now);
  /// Returns what to print when `done` bytes are there; may be empty.
  std::string show(std::int64_t done, Clock::time_point now);
  /// Says that the file is whole.
  std::string end(Clock::time_point now);

 private:
  std::string rate_text(std::int64_t moved, Clock::time_point now) const;

  bool terminal_;
  int columns_;
  const char* done_word_;
  std::string name_;
  std::int64_t size_ = 0;
  std::int64_t there_ = 0;
  Clock::time_point begin_;
  Clock::time_point shown_;
};

/// TransferDisplay shows one file after the other. The bar of one that breaks off is not left on
/// the terminal's line.
class TransferDisplay {
 public:
  /// `quiet`: shows nothing. `done_word`: as TransferProgress.
  TransferDisplay(bool quiet, const char* done_word);
  ~TransferDisplay() { clear(); }
  TransferDisplay(const TransferDisplay&) = delete;
  TransferDisplay& operator=(const TransferDisplay&) = delete;

  /// Begins a file of `size` bytes, of which `there` need not be transferred.
  void begin(const std::string& name, std::int64_t size, std::int64_t there);
  void show(std::int64_t done);
  /// Says that the file is whole.
  void end();
  /// Takes the bar of one that is not whole off the line.
  void clear();

 private:
  void print(const std::string& text) const;

  const bool quiet_;
  const bool terminal_;
  bool open_ = false;  ///< a bar may be on the line
  TransferProgress progress_;
};

}  // namespace meshloom::cli
