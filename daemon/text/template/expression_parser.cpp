// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/template/expression_parser.h"

#include "daemon/text/template/expression_nodes.h"

namespace meshloom::text::chat {

ExpressionPtr ExpressionParser::expression(bool conditional) {
  const TokenStream::Level level(tokens_);
  ExpressionPtr value = or_test();
  while (conditional && tokens_.at_name("if")) {
    const int line = tokens_.take().line;
    ExpressionPtr condition = or_test(), otherwise;
    if (tokens_.skip_name("else")) otherwise = expression();
    const int height = height_of({condition.get(), value.get(), otherwise.get()});
    value = make_expression(
        tokens_.source(), Conditional{std::move(condition), std::move(value), std::move(otherwise)},
        line, height);
  }
  return value;
}

ExpressionPtr ExpressionParser::expressions(bool conditional, std::string_view end) {
  const int line = tokens_.line();
  std::vector<ExpressionPtr> items;
  bool is_tuple = false;
  const auto ends = [&] {
    return tokens_.at(TokenKind::kOutputEnd) || tokens_.at(TokenKind::kTagEnd) ||
           tokens_.at_operator(")") || (!end.empty() && tokens_.at_name(end));
  };
  while (!ends()) {
    items.push_back(expression(conditional));
    if (!tokens_.skip_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (items.empty()) tokens_.unexpected("an expression");
    return std::move(items[0]);
  }
  const int height = height_of(items);
  return make_expression(tokens_.source(),
                         SequenceLiteral{Sequence::Kind::kTuple, std::move(items)}, line, height);
}

ExpressionPtr ExpressionParser::or_test() {
  ExpressionPtr left = and_test();
  while (tokens_.at_name("or")) {
    const int line = tokens_.take().line;
    ExpressionPtr right = and_test();
    const int height = height_of({left.get(), right.get()});
    left = make_expression(tokens_.source(), Logical{true, std::move(left), std::move(right)}, line,
                           height);
  }
  return left;
}

ExpressionPtr ExpressionParser::and_test() {
  ExpressionPtr left = not_test();
  while (tokens_.at_name("and")) {
    const int line = tokens_.take().line;
    ExpressionPtr right = not_test();
    const int height = height_of({left.get(), right.get()});
    left = make_expression(tokens_.source(), Logical{false, std::move(left), std::move(right)},
                           line, height);
  }
  return left;
}

ExpressionPtr ExpressionParser::not_test() {
  if (!tokens_.at_name("not")) return comparison();
  const TokenStream::Level level(tokens_);
  const int line = tokens_.take().line;
  ExpressionPtr operand = not_test();
  const int height = height_of({operand.get()});
  return make_expression(tokens_.source(), Unary{Unary::Operator::kNot, std::move(operand)}, line,
                         height);
}

std::optional<Relation> ExpressionParser::relation() {
  constexpr std::pair<std::string_view, Relation> kRelations[] = {
      {"==", Relation::kEqual},     {"!=", Relation::kNotEqual}, {"<", Relation::kLess},
      {"<=", Relation::kLessEqual}, {">", Relation::kGreater},   {">=", Relation::kGreaterEqual}};
  for (const auto& [spelling, relation] : kRelations)
    if (tokens_.skip_operator(spelling)) return relation;
  if (tokens_.skip_name("in")) return Relation::kIn;
  if (!tokens_.at_name("not") || !tokens_.following().is_name("in")) return std::nullopt;
  tokens_.take();
  tokens_.take();
  return Relation::kNotIn;
}

ExpressionPtr ExpressionParser::comparison() {
  const int line = tokens_.line();
  Comparison comparison{sum(), {}};
  int height = height_of({comparison.first.get()});
  while (const std::optional<Relation> sign = relation()) {
    comparison.rest.emplace_back(*sign, sum());
    height = std::max(height, height_of({comparison.rest.back().second.get()}));
  }
  if (comparison.rest.empty()) return std::move(comparison.first);
  return make_expression(tokens_.source(), std::move(comparison), line, height);
}

template <typename Next>
ExpressionPtr ExpressionParser::left_to_right(
    std::initializer_list<std::pair<std::string_view, Arithmetic>> operators, Next&& next) {
  ExpressionPtr left = next();
  for (;;) {
    const auto found = std::find_if(operators.begin(), operators.end(), [&](const auto& one) {
      return tokens_.at_operator(one.first);
    });
    if (found == operators.end()) return left;
    const int line = tokens_.take().line;
    ExpressionPtr right = next();
    const int height = height_of({left.get(), right.get()});
    left = make_expression(tokens_.source(),
                           Binary{found->second, std::move(left), std::move(right)}, line, height);
  }
}

ExpressionPtr ExpressionParser::sum() {
  return left_to_right({{"+", Arithmetic::kAdd}, {"-", Arithmetic::kSubtract}},
                       [&] { return concatenation(); });
}

ExpressionPtr ExpressionParser::concatenation() {
  const int line = tokens_.line();
  Concatenation concatenation;
  do concatenation.parts.push_back(product());
  while (tokens_.skip_operator("~"));
  if (concatenation.parts.size() == 1) return std::move(concatenation.parts[0]);
  const int height = height_of(concatenation.parts);
  return make_expression(tokens_.source(), std::move(concatenation), line, height);
}

ExpressionPtr ExpressionParser::product() {
  return left_to_right({{"*", Arithmetic::kMultiply},
                        {"/", Arithmetic::kDivide},
                        {"//", Arithmetic::kFloorDivide},
                        {"%", Arithmetic::kRemainder}},
                       [&] { return power(); });
}

/// From the left, which is Jinja's way and not Python's.
ExpressionPtr ExpressionParser::power() {
  return left_to_right({{"**", Arithmetic::kPower}}, [&] { return unary(true); });
}

ExpressionPtr ExpressionParser::unary(bool with_filters) {
  const TokenStream::Level level(tokens_);
  ExpressionPtr value;
  if (tokens_.at_operator("-") || tokens_.at_operator("+")) {
    const Token sign = tokens_.take();
    ExpressionPtr operand = unary(false);
    const int height = height_of({operand.get()});
    const auto op = sign.text == "-" ? Unary::Operator::kNegative : Unary::Operator::kPositive;
    value = make_expression(tokens_.source(), Unary{op, std::move(operand)}, sign.line, height);
  } else {
    value = primary();
  }
  value = postfix(std::move(value));
  return with_filters ? filter_expression(std::move(value)) : std::move(value);
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr value) {
  for (;;) {
    if (tokens_.at_operator("."))
      value = dotted(std::move(value));
    else if (tokens_.at_operator("["))
      value = subscript(std::move(value));
    else if (tokens_.at_operator("("))
      value = call(std::move(value));
    else
      return value;
  }
}

ExpressionPtr ExpressionParser::filter_expression(ExpressionPtr value) {
  for (;;) {
    if (tokens_.at_operator("|"))
      value = filters(std::move(value), false);
    else if (tokens_.at_name("is"))
      value = test(std::move(value));
    else if (tokens_.at_operator("("))
      value = call(std::move(value));
    else
      return value;
  }
}

}  // namespace meshloom::text::chat
