// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/transfer_display.h"

#include <unistd.h>

#include <cstdio>

#include "daemon/cli/terminal.h"

namespace meshloom::cli {

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
