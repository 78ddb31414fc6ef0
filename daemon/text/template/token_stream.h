// SPDX-License-Identifier: Apache-2.0
// TokenStream: the tokens of a template one by one, as the parsers of expressions and statements
// read them.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/text/template/lexer.h"
#include "daemon/text/template/source.h"

namespace meshloom::text::chat {

class TokenStream {
 public:
  explicit TokenStream(const SourceText& source) : source_(source), tokens_(read_tokens(source)) {}

  const SourceText& source() const { return source_; }
  const Token& current() const { return tokens_[at_]; }
  const Token& following() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  int line() const { return current().line; }
  bool at(TokenKind kind) const { return current().kind == kind; }
  bool at_operator(std::string_view spelling) const { return current().is_operator(spelling); }
  bool at_name(std::string_view name) const { return current().is_name(name); }

  Token take() {
    Token token = std::move(tokens_[at_]);
    if (token.kind == TokenKind::kEnd) tokens_[at_].kind = TokenKind::kEnd;
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool skip_operator(std::string_view spelling) { return at_operator(spelling) && skip(); }
  bool skip_name(std::string_view name) { return at_name(name) && skip(); }
  void expect_operator(std::string_view spelling) {
    if (!skip_operator(spelling)) unexpected(std::string("'") + std::string(spelling) + "'");
  }
  void expect_name(std::string_view name) {
    if (!skip_name(name)) unexpected(std::string("'") + std::string(name) + "'");
  }
  Token expect(TokenKind kind, const char* what) {
    if (!at(kind)) unexpected(what);
    return take();
  }

  /// Throws, since the current token is not what was expected.
  [[noreturn]] void unexpected(std::string_view expected) const {
    source_.refuse(line(), "unexpected {}, expected {}", description(), expected);
  }

  /// Level is one more level of nesting, while it lives.
  class Level {
   public:
    explicit Level(TokenStream& stream) : stream_(stream) {
      if (++stream.depth_ > kMostNesting) {
        --stream.depth_;
        stream.source_.too_large(stream.line(), "more than {} levels of brackets and tags",
                                 kMostNesting);
      }
    }
    ~Level() { --stream_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    TokenStream& stream_;
  };
  static constexpr int kMostNesting = 400;

 private:
  bool skip() {
    take();
    return true;
  }
  std::string description() const {
    switch (current().kind) {
      case TokenKind::kEnd: return "end of the template";
      case TokenKind::kData: return "text";
      case TokenKind::kOutputBegin: return "'{{'";
      case TokenKind::kOutputEnd: return "'}}'";
      case TokenKind::kTagBegin: return "'{%'";
      case TokenKind::kTagEnd: return "'%}'";
      case TokenKind::kString: return "a string";
      case TokenKind::kInteger:
      case TokenKind::kFloat: return "a number";
      case TokenKind::kName:
      case TokenKind::kOperator: break;
    }
    constexpr std::size_t kMost = 60;
    return "'" + current().text.substr(0, kMost) + "'";
  }

  const SourceText& source_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace meshloom::text::chat
