// SPDX-License-Identifier: Apache-2.0
// SourceText: the text of a template and the errors that name a place in it.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

namespace meshloom::text::chat {

/// Bytes of a template; those of models have at most 30 thousand.
inline constexpr std::size_t kMostSourceBytes = std::size_t{1} << 20;

class SourceText {
 public:
  /// `origin` begins the errors. Line ends become \n, and one at the end of all is left out, as
  /// Jinja has it. Throws ResourceExhausted (TOKENIZER_LIMIT) above kMostSourceBytes.
  SourceText(std::string_view text, std::string origin);

  const std::string& text() const { return text_; }
  const std::string& origin() const { return origin_; }

  /// Throws InvalidArgument (TEMPLATE_SYNTAX): the line is no template.
  template <typename... Args>
  [[noreturn]] void refuse(int line, fmt::format_string<Args...> format, Args&&... args) const {
    throw_syntax(line, fmt::format(format, std::forward<Args>(args)...));
  }
  /// Throws Unimplemented (NOT_OFFERED): Jinja has it, and this language has not.
  template <typename... Args>
  [[noreturn]] void not_offered(int line, fmt::format_string<Args...> format,
                                Args&&... args) const {
    throw_not_offered(line, fmt::format(format, std::forward<Args>(args)...));
  }
  /// Throws ResourceExhausted (TOKENIZER_LIMIT).
  template <typename... Args>
  [[noreturn]] void too_large(int line, fmt::format_string<Args...> format, Args&&... args) const {
    throw_too_large(line, fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  [[noreturn]] void throw_syntax(int line, const std::string& what) const;
  [[noreturn]] void throw_not_offered(int line, const std::string& what) const;
  [[noreturn]] void throw_too_large(int line, const std::string& what) const;

  std::string text_, origin_;
};

}  // namespace meshloom::text::chat
