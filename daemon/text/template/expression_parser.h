// SPDX-License-Identifier: Apache-2.0
// ExpressionParser: expressions by Jinja's grammar, which is Python's but for filters, tests and ~.
#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>

#include "daemon/text/template/syntax.h"
#include "daemon/text/template/token_stream.h"

namespace meshloom::text::chat {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}

  /// Parses one expression; `conditional`: also "a if b else c".
  ExpressionPtr expression(bool conditional = true);
  /// Parses one, or a tuple of several without brackets, which ends before `end`.
  ExpressionPtr expressions(bool conditional = true, std::string_view end = {});
  /// Parses filters behind `input`, which may be null; `named`: the first has no | in front.
  ExpressionPtr filters(ExpressionPtr input, bool named);
  /// Parses what may be assigned to: names, tuples of them and, with `attributes`, namespace.name.
  Target target(bool attributes, std::string_view end = {});
  Name name();

 private:
  ExpressionPtr or_test();
  ExpressionPtr and_test();
  ExpressionPtr not_test();
  ExpressionPtr comparison();
  std::optional<Relation> relation();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filters);
  ExpressionPtr primary();
  ExpressionPtr name_or_word();
  ExpressionPtr literal_string();
  ExpressionPtr list_literal();
  ExpressionPtr dict_literal();
  ExpressionPtr parenthesized();
  ExpressionPtr postfix(ExpressionPtr value);
  ExpressionPtr filter_expression(ExpressionPtr value);
  ExpressionPtr dotted(ExpressionPtr object);
  ExpressionPtr subscript(ExpressionPtr object);
  ExpressionPtr call(ExpressionPtr callee);
  ExpressionPtr test(ExpressionPtr value);
  CallArguments call_arguments();
  void argument(CallArguments& arguments);
  std::string dotted_name();
  bool begins_argument() const;
  Target single_target(bool attributes);

  /// Parses left to right: `next` and operators between.
  template <typename Next>
  ExpressionPtr left_to_right(
      std::initializer_list<std::pair<std::string_view, Arithmetic>> operators, Next&& next);

  TokenStream& tokens_;
};

}  // namespace meshloom::text::chat
