// SPDX-License-Identifier: Apache-2.0
// The syntax tree of a template.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "daemon/text/template/filters.h"
#include "daemon/text/template/tests.h"
#include "daemon/text/template/value.h"

namespace meshloom::text::chat {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

// --- Names

/// A name is held here while the template runs: so many frames further out, in which slot.
struct Variable {
  int frames = 0;
  int slot = 0;
};

/// A frame begins with such loads: each of these slots is loaded, the others hold nothing.
struct Load {
  enum class From { kContext, kOuter };

  From from = From::kContext;
  int slot = 0;
  Variable outer;    ///< seen from this frame
  std::string name;  ///< in the context: what is given to the template, and functions
};

/// Scope is a part of a template with names of its own.
struct Scope {
  int slots = 0;
  std::vector<Load> loads;
};

// --- Expressions

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr more_positional, more_named;  ///< behind * and **
};

struct Constant {
  Value value;
};
struct Name {
  std::string name;
  Variable variable;
};
struct SequenceLiteral {
  Sequence::Kind kind;
  std::vector<ExpressionPtr> items;
};
struct DictLiteral {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};
struct Unary {
  enum class Operator { kNot, kNegative, kPositive };
  Operator op;
  ExpressionPtr operand;
};
enum class Arithmetic { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kRemainder, kPower };
struct Binary {
  Arithmetic op;
  ExpressionPtr left, right;
};
struct Logical {
  bool is_or;
  ExpressionPtr left, right;
};
struct Concatenation {
  std::vector<ExpressionPtr> parts;
};
enum class Relation { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };
struct Comparison {
  ExpressionPtr first;
  std::vector<std::pair<Relation, ExpressionPtr>> rest;
};
struct Conditional {
  ExpressionPtr test, value, otherwise;  ///< `otherwise` may be null
};
struct Attribute {
  ExpressionPtr object;
  std::string name;
};
struct Item {
  ExpressionPtr object, index;
};
struct Slice {
  ExpressionPtr object, start, stop, step;  ///< these may be null
};
struct Call {
  ExpressionPtr callee;
  CallArguments arguments;
};
/// `input` is null for the first filter of a block: it is the block's text.
struct FilterCall {
  const Filter* filter;
  ExpressionPtr input;
  CallArguments arguments;
};
struct TestCall {
  const Test* test;
  ExpressionPtr input;
  CallArguments arguments;
};

struct Expression {
  std::variant<Constant, Name, SequenceLiteral, DictLiteral, Unary, Binary, Logical, Concatenation,
               Comparison, Conditional, Attribute, Item, Slice, Call, FilterCall, TestCall>
      node;
  int line = 1;
  int height = 1;  ///< levels of expressions in it
};

// --- Statements

struct Statement;
using Block = std::vector<Statement>;

struct Target;
struct NamespaceAttribute {
  Name name;
  std::string attribute;
};
/// A target is what is assigned to.
struct Target {
  std::variant<Name, NamespaceAttribute, std::vector<Target>> node;
};

struct Data {
  std::string text;
};
struct Output {
  std::vector<ExpressionPtr> values;
};
struct If {
  std::vector<std::pair<ExpressionPtr, Block>> branches;
  Block otherwise;
};
struct For {
  Target target;
  ExpressionPtr iterable, test;  ///< `test` may be null
  bool recursive = false;
  Block body, otherwise;
  Scope scope, test_scope, otherwise_scope;
  Variable loop;       ///< seen from the body
  Target test_target;  ///< the same names, seen from the test
};
struct Set {
  Target target;
  ExpressionPtr value;
};
struct SetBlock {
  Target target;
  ExpressionPtr filter;  ///< may be null
  Block body;
  Scope scope;
};
struct With {
  std::vector<std::pair<Target, ExpressionPtr>> assignments;
  Block body;
  Scope scope;
};
struct FilterBlock {
  ExpressionPtr filter;
  Block body;
  Scope scope;
};
struct Parameter {
  std::string name;
  Variable variable;
  ExpressionPtr otherwise;  ///< may be null
};
/// Macros, and blocks that are given to them, run a definition.
struct MacroDefinition {
  std::string name;  ///< empty for a block
  int line = 1;
  std::vector<Parameter> parameters;
  // --- Names that stand for other arguments, where the body has them.
  std::optional<Variable> caller, kwargs, varargs;
  bool has_caller_parameter = false;
  Block body;
  Scope scope;
};
struct MacroStatement {
  std::unique_ptr<MacroDefinition> definition;
  Name name;
};
struct CallBlock {
  ExpressionPtr call;  ///< of a Call
  std::unique_ptr<MacroDefinition> definition;
};
struct Generation {
  std::unique_ptr<MacroDefinition> definition;
};
struct Break {};
struct Continue {};

struct Statement {
  std::variant<Data, Output, If, For, Set, SetBlock, With, FilterBlock, MacroStatement, CallBlock,
               Generation, Break, Continue>
      node;
  int line = 1;
};

struct Syntax {
  Block body;
  Scope scope;
  bool marks_generation = false;
};

/// Macro is a macro that was defined while the template runs, and the frame around it.
struct Macro {
  const MacroDefinition* definition;
  std::shared_ptr<Frame> frame;
};

}  // namespace meshloom::text::chat
