// SPDX-License-Identifier: Apache-2.0
// Document: a text to be tokenized, and how it is taken from files.
#pragma once

#include <string>

namespace meshloom::text {

struct Document {
  std::string text;
  /// U+FFFD stands in it for halves of surrogate pairs, which a line of JSON had.
  bool has_lone_surrogates = false;
};

struct DocumentReading {
  std::string field = "text";             ///< of lines of JSON: which holds the text
  bool skips_lines_without_text = false;  ///< of JSON; else they are refused
  /// Files of text are read as their bytes are. Else as text (TextModeReader).
  bool keeps_bytes = false;
};

}  // namespace meshloom::text
