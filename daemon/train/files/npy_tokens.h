// SPDX-License-Identifier: Apache-2.0
// NpyTokens: what a .npy file says of itself, and its first numbers. No job reads such files.
//
// Source: numpy.lib.format, versions 1.0 to 3.0: a magic, a version, the length of the header, the
// header as a literal of Python, then the numbers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "daemon/base/input_file.h"

namespace meshloom::train {

class NpyTokens {
 public:
  /// Throws InvalidArgument naming the file if it is none.
  explicit NpyTokens(const std::filesystem::path& path);

  const std::string& dtype() const { return dtype_; }  ///< as numpy spells it: "<u2"
  std::int64_t size() const { return size_; }          ///< numbers
  std::uint64_t file_bytes() const { return file_.size(); }
  /// Tells whether its numbers are integers in this machine's order of bytes.
  bool is_readable() const { return width_ > 0; }
  /// Reads the first numbers in the order of the file, at most `count`.
  std::vector<std::int64_t> read_first(std::int64_t count) const;

 private:
  void read_header(const std::string& header);

  base::InputFile file_;
  std::uint64_t offset_ = 0;
  std::string dtype_;
  std::int64_t size_ = 0;
  int width_ = 0;  ///< bytes of a number
  bool is_signed_ = false;
};

}  // namespace meshloom::train
