// SPDX-License-Identifier: Apache-2.0
// TextModeReader: the bytes of a file of text, as text.
#pragma once

#include <string>
#include <string_view>

namespace meshloom::text {

/// Reads as Python's text mode does: each of "\r\n" and a lone "\r" is a "\n". A byte-order mark of
/// UTF-8 at the beginning is left out, which Python does with the encoding "utf-8-sig": it says how
/// the file is encoded, and is no part of its text. What is no UTF-8 stays as it is.
class TextModeReader {
 public:
  /// Appends the next part of the file to `out`. The first part has at least three bytes, or is the
  /// whole file.
  void read(std::string_view part, std::string& out);

 private:
  bool at_begin_ = true;
  bool after_return_ = false;  ///< the part before ended in a "\r", which is a "\n" already
};

/// Reads a whole file.
std::string read_text_mode(std::string_view bytes);

}  // namespace meshloom::text
