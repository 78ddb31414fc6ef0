// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/template/parser.h"

#include "daemon/text/template/expression_nodes.h"
#include "daemon/text/template/expression_parser.h"
#include "daemon/text/template/name_resolution.h"
#include "daemon/text/template/token_stream.h"

namespace meshloom::text::chat {
namespace {

using Ends = std::initializer_list<std::string_view>;

class StatementParser {
 public:
  explicit StatementParser(const SourceText& source)
      : source_(source), tokens_(source), expressions_(tokens_) {}

  Syntax read() {
    Syntax syntax;
    syntax.body = statements({});
    syntax.marks_generation = marks_generation_;
    return syntax;
  }

 private:
  /// Where a statement stands.
  struct Place {
    bool in_loop = false;   ///< break and continue have a loop
    bool captured = false;  ///< its text goes elsewhere than to the end of the rendered text
  };
  /// The place of what is read, while it lives.
  class Inside {
   public:
    Inside(Place& place, Place inner) : place_(place), before_(place) { place = inner; }
    ~Inside() { place_ = before_; }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    Place& place_;
    const Place before_;
  };

  /// Statements up to a tag of one of the names, which is left where it is; empty: to the end.
  Block statements(Ends ends) {
    const TokenStream::Level level(tokens_);
    Block block;
    while (!tokens_.at(TokenKind::kEnd)) {
      const int line = tokens_.line();
      if (tokens_.at(TokenKind::kData)) {
        add(block, Data{tokens_.take().text}, line);
      } else if (tokens_.at(TokenKind::kOutputBegin)) {
        tokens_.take();
        Output output;
        output.values.push_back(expressions_.expressions());
        add(block, std::move(output), line);
        tokens_.expect(TokenKind::kOutputEnd, "'}}'");
      } else {
        tokens_.expect(TokenKind::kTagBegin, "a tag");
        for (const std::string_view end : ends)
          if (tokens_.at_name(end)) return block;
        statement(block, line);
        tokens_.expect(TokenKind::kTagEnd, "'%}'");
      }
    }
    if (ends.size() > 0) tokens_.unexpected(fmt::format("{{% {} %}}", *(ends.end() - 1)));
    return block;
  }
  /// The body of a tag, up to its end, which is left out.
  Block body(Ends ends) {
    tokens_.skip_operator(":");
    tokens_.expect(TokenKind::kTagEnd, "'%}'");
    return statements(ends);
  }
  Block body_to(std::string_view end) {
    Block block = body({end});
    tokens_.take();
    return block;
  }

  template <typename Node>
  static void add(Block& block, Node node, int line) {
    Statement& statement = block.emplace_back();
    statement.node = std::move(node);
    statement.line = line;
  }

  void statement(Block& block, int line) {
    const Token tag = tokens_.expect(TokenKind::kName, "the name of a tag");
    if (tag.text == "if") return add(block, read_if(), line);
    if (tag.text == "for") return add(block, read_for(), line);
    if (tag.text == "set") return read_set(block, line);
    if (tag.text == "macro") return add(block, read_macro(line), line);
    if (tag.text == "call") return add(block, read_call(line), line);
    if (tag.text == "filter") return add(block, read_filter(), line);
    if (tag.text == "with") return add(block, read_with(), line);
    if (tag.text == "generation") return add(block, read_generation(line), line);
    if (tag.text == "print") return add(block, read_print(), line);
    if (tag.text == "break" || tag.text == "continue") return read_jump(block, tag);
    refuse_tag(tag);
  }

  [[noreturn]] void refuse_tag(const Token& tag) const {
    constexpr std::string_view kLeftOut[] = {"autoescape", "block",  "debug",   "do",   "extends",
                                             "from",       "import", "include", "trans"};
    if (std::find(std::begin(kLeftOut), std::end(kLeftOut), tag.text) != std::end(kLeftOut))
      source_.not_offered(tag.line, "the tag {{% {} %}}", tag.text);
    source_.refuse(tag.line, "unexpected tag {{% {:.60} %}}", tag.text);
  }

  If read_if() {
    If result;
    for (;;) {
      ExpressionPtr test = expressions_.expressions(false);
      Block block = body({"elif", "else", "endif"});
      result.branches.emplace_back(std::move(test), std::move(block));
      if (!tokens_.skip_name("elif")) break;
    }
    if (tokens_.skip_name("else")) result.otherwise = body({"endif"});
    tokens_.expect_name("endif");
    return result;
  }

  For read_for() {
    For loop;
    loop.target = expressions_.target(false, "in");
    tokens_.expect_name("in");
    loop.iterable = expressions_.expressions(false, "recursive");
    if (tokens_.skip_name("if")) loop.test = expressions_.expression();
    loop.recursive = tokens_.skip_name("recursive");
    {
      const Inside inside(place_, {true, place_.captured || loop.recursive});
      loop.body = body({"else", "endfor"});
    }
    if (tokens_.skip_name("else")) {
      const Inside inside(place_,
                          {place_.in_loop && !loop.recursive, place_.captured || loop.recursive});
      loop.otherwise = body({"endfor"});
    }
    tokens_.expect_name("endfor");
    return loop;
  }

  void read_set(Block& block, int line) {
    Target target = expressions_.target(true);
    if (tokens_.skip_operator("="))
      return add(block, Set{std::move(target), expressions_.expressions()}, line);
    SetBlock set{std::move(target), nullptr, {}, {}};
    if (tokens_.at_operator("|")) set.filter = expressions_.filters(nullptr, false);
    const Inside inside(place_, {place_.in_loop, true});
    set.body = body_to("endset");
    add(block, std::move(set), line);
  }

  void read_parameters(MacroDefinition& macro) {
    tokens_.expect_operator("(");
    while (!tokens_.at_operator(")")) {
      Parameter parameter{expressions_.name().name, {}, nullptr};
      for (const Parameter& other : macro.parameters)
        if (other.name == parameter.name)
          source_.refuse(tokens_.line(), "duplicate argument '{}'", parameter.name);
      if (tokens_.skip_operator("="))
        parameter.otherwise = expressions_.expression();
      else if (!macro.parameters.empty() && macro.parameters.back().otherwise != nullptr)
        source_.refuse(tokens_.line(), "non-default argument follows default argument");
      macro.parameters.push_back(std::move(parameter));
      if (!tokens_.skip_operator(",")) break;
    }
    tokens_.expect_operator(")");
  }

  std::unique_ptr<MacroDefinition> new_macro(int line) const {
    auto macro = std::make_unique<MacroDefinition>();
    macro->line = line;
    return macro;
  }

  MacroStatement read_macro(int line) {
    MacroStatement statement{new_macro(line), expressions_.name()};
    statement.definition->name = statement.name.name;
    read_parameters(*statement.definition);
    const Inside inside(place_, {false, true});
    statement.definition->body = body_to("endmacro");
    return statement;
  }

  CallBlock read_call(int line) {
    CallBlock block{nullptr, new_macro(line)};
    if (tokens_.at_operator("(")) read_parameters(*block.definition);
    block.call = expressions_.expression();
    if (!std::holds_alternative<Call>(block.call->node)) source_.refuse(line, "expected a call");
    const Inside inside(place_, {false, true});
    block.definition->body = body_to("endcall");
    return block;
  }

  Generation read_generation(int line) {
    if (place_.captured)
      source_.not_offered(line,
                          "{{% generation %}} inside of a macro, a block or another one: where "
                          "its text will be is not known there");
    marks_generation_ = true;
    Generation generation{new_macro(line)};
    const Inside inside(place_, {false, true});
    generation.definition->body = body_to("endgeneration");
    return generation;
  }

  FilterBlock read_filter() {
    FilterBlock block;
    block.filter = expressions_.filters(nullptr, true);
    const Inside inside(place_, {place_.in_loop, true});
    block.body = body_to("endfilter");
    return block;
  }

  With read_with() {
    With with;
    while (!tokens_.at(TokenKind::kTagEnd)) {
      if (!with.assignments.empty()) tokens_.expect_operator(",");
      Target target = expressions_.target(false);
      tokens_.expect_operator("=");
      ExpressionPtr value = expressions_.expression();
      with.assignments.emplace_back(std::move(target), std::move(value));
    }
    with.body = body_to("endwith");
    return with;
  }

  Output read_print() {
    Output output;
    while (!tokens_.at(TokenKind::kTagEnd)) {
      if (!output.values.empty()) tokens_.expect_operator(",");
      output.values.push_back(expressions_.expression());
    }
    return output;
  }

  void read_jump(Block& block, const Token& tag) {
    if (!place_.in_loop) source_.refuse(tag.line, "{{% {} %}} outside of a loop", tag.text);
    if (tag.text == "break")
      add(block, Break{}, tag.line);
    else
      add(block, Continue{}, tag.line);
  }

  const SourceText& source_;
  TokenStream tokens_;
  ExpressionParser expressions_;
  Place place_;
  bool marks_generation_ = false;
};

}  // namespace

Syntax parse_template(const SourceText& source) {
  Syntax syntax = StatementParser(source).read();
  resolve_names(source, syntax);
  return syntax;
}

}  // namespace meshloom::text::chat
