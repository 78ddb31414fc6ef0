// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/text_mode.h"

namespace meshloom::text {

void TextModeReader::read(std::string_view part, std::string& out) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (at_begin_ && part.starts_with(kByteOrderMark)) part.remove_prefix(kByteOrderMark.size());
  at_begin_ = false;
  while (!part.empty()) {
    if (after_return_ && part.front() == '\n') part.remove_prefix(1);
    after_return_ = false;
    const std::size_t end = part.find('\r');
    out += part.substr(0, end);
    if (end == std::string_view::npos) return;
    out += '\n';
    after_return_ = true;
    part.remove_prefix(end + 1);
  }
}

std::string read_text_mode(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  TextModeReader().read(bytes, text);
  return text;
}

}  // namespace meshloom::text
