// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/template/source.h"

#include "daemon/text/utf8.h"
#include "kernels/base/error.h"

namespace meshloom::text::chat {
namespace {

std::string with_unix_lines(std::string_view text) {
  std::string lines;
  lines.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      lines += text[i];
      continue;
    }
    lines += '\n';
    if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
  }
  if (!lines.empty() && lines.back() == '\n') lines.pop_back();
  return lines;
}

Error::Metadata place(const std::string& origin, int line) {
  return {{"file", origin}, {"line", std::to_string(line)}};
}

}  // namespace

SourceText::SourceText(std::string_view text, std::string origin) : origin_(std::move(origin)) {
  if (text.size() > kMostSourceBytes)
    too_large(1, "the template has {} bytes, expected at most {}", text.size(), kMostSourceBytes);
  std::string storage;
  text_ = with_unix_lines(valid_utf8(text, storage));
}

void SourceText::throw_syntax(int line, const std::string& what) const {
  throw InvalidArgument(fmt::format("{}:{}: {}", origin_, line, what), "TEMPLATE_SYNTAX",
                        place(origin_, line));
}

void SourceText::throw_not_offered(int line, const std::string& what) const {
  throw Unimplemented(fmt::format("{}:{}: {}", origin_, line, what), "NOT_OFFERED",
                      place(origin_, line));
}

void SourceText::throw_too_large(int line, const std::string& what) const {
  throw ResourceExhausted(fmt::format("{}:{}: {}", origin_, line, what), "TOKENIZER_LIMIT",
                          place(origin_, line));
}

}  // namespace meshloom::text::chat
