// SPDX-License-Identifier: Apache-2.0
// The progress of transfers on standard error.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/cli/transfer_progress.h"

namespace meshloom::cli {

/// One file after the other. The bar of one that breaks off is not left on the terminal's line.
class TransferDisplay {
 public:
  /// `quiet`: shows nothing. `done_word`: as TransferProgress.
  TransferDisplay(bool quiet, const char* done_word);
  ~TransferDisplay() { clear(); }
  TransferDisplay(const TransferDisplay&) = delete;
  TransferDisplay& operator=(const TransferDisplay&) = delete;

  /// A file of `size` bytes, of which `there` need not be transferred.
  void begin(const std::string& name, std::int64_t size, std::int64_t there);
  void show(std::int64_t done);
  /// The file is whole.
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
