// SPDX-License-Identifier: Apache-2.0
// The tokens of a template: its text, and what stands between {{ }} and {% %}.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/text/template/source.h"

namespace meshloom::text::chat {

enum class TokenKind {
  kData,         ///< text of the template
  kOutputBegin,  ///< {{
  kOutputEnd,    ///< }}
  kTagBegin,     ///< {%
  kTagEnd,       ///< %}
  kName,         ///< also the words of the language
  kString,       ///< its value
  kInteger,      ///<
  kFloat,        ///<
  kOperator,     ///< its spelling
  kEnd           ///< of the template
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 1;
  /// Data, names, strings (unescaped) and operators have this text; other tokens have none.
  std::string text;
  std::int64_t integer = 0;
  double real = 0;

  bool is(TokenKind other, std::string_view spelling) const {
    return kind == other && text == spelling;
  }
  bool is_name(std::string_view name) const { return is(TokenKind::kName, name); }
  bool is_operator(std::string_view spelling) const { return is(TokenKind::kOperator, spelling); }
};

/// Returns all tokens of a template, with kEnd behind them: blanks are trimmed as its marks say,
/// and with trim_blocks and lstrip_blocks, comments left out, raw blocks turned into data. Throws
/// as SourceText does.
std::vector<Token> read_tokens(const SourceText& source);

}  // namespace meshloom::text::chat
