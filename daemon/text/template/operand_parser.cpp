// SPDX-License-Identifier: Apache-2.0
// What operators of expressions stand between: names, literals, calls, items, filters, tests.
#include "daemon/text/template/expression_nodes.h"
#include "daemon/text/template/expression_parser.h"

namespace meshloom::text::chat {
namespace {

/// Functions of Jinja that this language has not.
constexpr std::string_view kFunctionsLeftOut[] = {"cycler", "joiner", "lipsum"};

bool is_word(std::string_view name) {
  constexpr std::string_view kWords[] = {"true", "True", "false", "False", "none", "None"};
  return std::find(std::begin(kWords), std::end(kWords), name) != std::end(kWords);
}

}  // namespace

ExpressionPtr ExpressionParser::primary() {
  const TokenStream::Level level(tokens_);
  const Token& token = tokens_.current();
  switch (token.kind) {
    case TokenKind::kName: return name_or_word();
    case TokenKind::kString: return literal_string();
    case TokenKind::kInteger:
    case TokenKind::kFloat: {
      const Token number = tokens_.take();
      const Value value =
          number.kind == TokenKind::kInteger ? Value(number.integer) : Value(number.real);
      return make_expression(tokens_.source(), Constant{value}, number.line, 1);
    }
    case TokenKind::kOperator:
      if (token.text == "(") return parenthesized();
      if (token.text == "[") return list_literal();
      if (token.text == "{") return dict_literal();
      break;
    default: break;
  }
  tokens_.unexpected("an expression");
}

ExpressionPtr ExpressionParser::name_or_word() {
  const Token token = tokens_.take();
  if (!is_word(token.text))
    return make_expression(tokens_.source(), Name{token.text, {}}, token.line, 1);
  const char first = static_cast<char>(token.text[0] | 0x20);
  const Value value = first == 'n' ? Value(None()) : Value(first == 't');
  return make_expression(tokens_.source(), Constant{value}, token.line, 1);
}

/// Strings behind each other are one.
ExpressionPtr ExpressionParser::literal_string() {
  const int line = tokens_.line();
  std::string text;
  while (tokens_.at(TokenKind::kString)) text += tokens_.take().text;
  return make_expression(tokens_.source(), Constant{constant_text(std::move(text))}, line, 1);
}

ExpressionPtr ExpressionParser::parenthesized() {
  const int line = tokens_.take().line;
  if (tokens_.skip_operator(")"))
    return make_expression(tokens_.source(), SequenceLiteral{Sequence::Kind::kTuple, {}}, line, 1);
  ExpressionPtr value = expressions();
  tokens_.expect_operator(")");
  return value;
}

ExpressionPtr ExpressionParser::list_literal() {
  const int line = tokens_.take().line;
  SequenceLiteral list{Sequence::Kind::kList, {}};
  while (!tokens_.at_operator("]")) {
    list.items.push_back(expression());
    if (!tokens_.skip_operator(",")) break;
  }
  tokens_.expect_operator("]");
  const int height = height_of(list.items);
  return make_expression(tokens_.source(), std::move(list), line, height);
}

ExpressionPtr ExpressionParser::dict_literal() {
  const int line = tokens_.take().line;
  DictLiteral dict;
  int height = 1;
  while (!tokens_.at_operator("}")) {
    ExpressionPtr key = expression();
    tokens_.expect_operator(":");
    ExpressionPtr value = expression();
    height = std::max(height, height_of({key.get(), value.get()}));
    dict.entries.emplace_back(std::move(key), std::move(value));
    if (!tokens_.skip_operator(",")) break;
  }
  tokens_.expect_operator("}");
  return make_expression(tokens_.source(), std::move(dict), line, height);
}

ExpressionPtr ExpressionParser::dotted(ExpressionPtr object) {
  const int line = tokens_.take().line;
  const int height = height_of({object.get()});
  if (tokens_.at(TokenKind::kInteger)) {
    ExpressionPtr index =
        make_expression(tokens_.source(), Constant{Value(tokens_.take().integer)}, line, 1);
    return make_expression(tokens_.source(), Item{std::move(object), std::move(index)}, line,
                           height);
  }
  std::string name = tokens_.expect(TokenKind::kName, "a name or a number").text;
  return make_expression(tokens_.source(), Attribute{std::move(object), std::move(name)}, line,
                         height);
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr object) {
  const int line = tokens_.take().line;
  const auto bound = [&]() -> ExpressionPtr {
    const bool is_left_out =
        tokens_.at_operator(":") || tokens_.at_operator("]") || tokens_.at_operator(",");
    return is_left_out ? nullptr : expression();
  };
  ExpressionPtr first = bound();
  if (tokens_.at_operator(","))
    tokens_.source().not_offered(tokens_.line(), "an index of several parts");
  if (tokens_.skip_operator("]")) {
    if (first == nullptr)
      first =
          make_expression(tokens_.source(), SequenceLiteral{Sequence::Kind::kTuple, {}}, line, 1);
    const int height = height_of({object.get(), first.get()});
    return make_expression(tokens_.source(), Item{std::move(object), std::move(first)}, line,
                           height);
  }
  tokens_.expect_operator(":");
  Slice slice{std::move(object), std::move(first), bound(), nullptr};
  if (tokens_.skip_operator(":")) slice.step = bound();
  tokens_.expect_operator("]");
  const int height =
      height_of({slice.object.get(), slice.start.get(), slice.stop.get(), slice.step.get()});
  return make_expression(tokens_.source(), std::move(slice), line, height);
}

ExpressionPtr ExpressionParser::call(ExpressionPtr callee) {
  const int line = tokens_.line();
  if (const Name* name = std::get_if<Name>(&callee->node))
    for (const std::string_view function : kFunctionsLeftOut)
      if (name->name == function) tokens_.source().not_offered(line, "the function '{}'", function);
  CallArguments arguments = call_arguments();
  const int height = std::max(height_of({callee.get()}), height_of(arguments));
  return make_expression(tokens_.source(), Call{std::move(callee), std::move(arguments)}, line,
                         height);
}

CallArguments ExpressionParser::call_arguments() {
  tokens_.expect_operator("(");
  CallArguments arguments;
  while (!tokens_.at_operator(")")) {
    argument(arguments);
    if (!tokens_.skip_operator(",")) break;
  }
  tokens_.expect_operator(")");
  return arguments;
}

void ExpressionParser::argument(CallArguments& arguments) {
  const bool is_last = arguments.more_named != nullptr;
  const bool is_behind = is_last || arguments.more_positional != nullptr;
  bool is_misplaced = false;
  if (tokens_.skip_operator("*")) {
    is_misplaced = is_behind;
    arguments.more_positional = expression();
  } else if (tokens_.skip_operator("**")) {
    is_misplaced = is_last;
    arguments.more_named = expression();
  } else if (tokens_.at(TokenKind::kName) && tokens_.following().is_operator("=")) {
    is_misplaced = is_last;
    std::string name = tokens_.take().text;
    tokens_.take();
    for (const auto& [other, value] : arguments.named)
      if (other == name) tokens_.source().refuse(tokens_.line(), "argument '{}' repeated", name);
    arguments.named.emplace_back(std::move(name), expression());
  } else {
    is_misplaced = is_behind || !arguments.named.empty();
    arguments.positional.push_back(expression());
  }
  if (is_misplaced)
    tokens_.source().refuse(tokens_.line(), "an argument stands behind named ones, * or **");
}

std::string ExpressionParser::dotted_name() {
  std::string name = tokens_.expect(TokenKind::kName, "a name").text;
  while (tokens_.skip_operator(".")) name += "." + tokens_.expect(TokenKind::kName, "a name").text;
  return name;
}

ExpressionPtr ExpressionParser::filters(ExpressionPtr input, bool named) {
  while (named || tokens_.skip_operator("|")) {
    named = false;
    const int line = tokens_.line();
    const std::string name = dotted_name();
    const Filter* filter = find_filter(name);
    if (filter == nullptr) tokens_.source().not_offered(line, "the filter '{:.60}'", name);
    CallArguments arguments;
    if (tokens_.at_operator("(")) arguments = call_arguments();
    const int height = std::max(height_of({input.get()}), height_of(arguments));
    input = make_expression(
        tokens_.source(), FilterCall{filter, std::move(input), std::move(arguments)}, line, height);
  }
  return input;
}

bool ExpressionParser::begins_argument() const {
  switch (tokens_.current().kind) {
    case TokenKind::kString:
    case TokenKind::kInteger:
    case TokenKind::kFloat: return true;
    case TokenKind::kOperator: return tokens_.at_operator("[") || tokens_.at_operator("{");
    case TokenKind::kName:
      return !tokens_.at_name("else") && !tokens_.at_name("or") && !tokens_.at_name("and");
    default: return false;
  }
}

ExpressionPtr ExpressionParser::test(ExpressionPtr value) {
  const int line = tokens_.take().line;
  const bool negated = tokens_.skip_name("not");
  const std::string name = dotted_name();
  const Test* test = find_test(name);
  if (test == nullptr) tokens_.source().not_offered(line, "the test '{:.60}'", name);
  CallArguments arguments;
  if (tokens_.at_operator("(")) {
    arguments = call_arguments();
  } else if (begins_argument()) {
    if (tokens_.at_name("is"))
      tokens_.source().refuse(line, "You cannot chain multiple tests with is");
    arguments.positional.push_back(postfix(primary()));
  }
  int height = std::max(height_of({value.get()}), height_of(arguments));
  value = make_expression(tokens_.source(), TestCall{test, std::move(value), std::move(arguments)},
                          line, height);
  if (!negated) return value;
  return make_expression(tokens_.source(), Unary{Unary::Operator::kNot, std::move(value)}, line,
                         height + 1);
}

Name ExpressionParser::name() {
  const Token token = tokens_.expect(TokenKind::kName, "a name");
  if (is_word(token.text)) tokens_.source().refuse(token.line, "can't assign to '{}'", token.text);
  return {token.text, {}};
}

Target ExpressionParser::single_target(bool attributes) {
  const TokenStream::Level level(tokens_);
  if (tokens_.skip_operator("(")) {
    Target inner = target(false);
    tokens_.expect_operator(")");
    return inner;
  }
  Name variable = name();
  if (!attributes || !tokens_.skip_operator(".")) return {std::move(variable)};
  std::string attribute = tokens_.expect(TokenKind::kName, "a name").text;
  return {NamespaceAttribute{std::move(variable), std::move(attribute)}};
}

Target ExpressionParser::target(bool attributes, std::string_view end) {
  std::vector<Target> parts;
  bool is_tuple = false;
  while (!tokens_.at(TokenKind::kTagEnd) && !tokens_.at_operator(")") &&
         (end.empty() || !tokens_.at_name(end))) {
    parts.push_back(single_target(attributes));
    if (!tokens_.skip_operator(",")) break;
    is_tuple = true;
  }
  if (parts.empty()) tokens_.unexpected("a name");
  if (!is_tuple) return std::move(parts[0]);
  return {std::move(parts)};
}

}  // namespace meshloom::text::chat
