// SPDX-License-Identifier: Apache-2.0
// Walks over the names in parts of a syntax tree.
#pragma once

#include <variant>

#include "daemon/text/template/syntax.h"

namespace meshloom::text::chat {

/// Calls body(child) for the expressions in a node of an expression.
template <typename Body>
struct ForEachChild {
  Body& body;

  void one(ExpressionPtr& child) const {
    if (child != nullptr) body(*child);
  }
  void all(std::vector<ExpressionPtr>& children) const {
    for (ExpressionPtr& child : children) one(child);
  }
  void all(CallArguments& arguments) const {
    all(arguments.positional);
    for (auto& [name, value] : arguments.named) one(value);
    one(arguments.more_positional);
    one(arguments.more_named);
  }

  void operator()(Constant&) const {}
  void operator()(Name&) const {}
  void operator()(SequenceLiteral& node) const { all(node.items); }
  void operator()(DictLiteral& node) const {
    for (auto& [key, value] : node.entries) {
      one(key);
      one(value);
    }
  }
  void operator()(Unary& node) const { one(node.operand); }
  void operator()(Binary& node) const {
    one(node.left);
    one(node.right);
  }
  void operator()(Logical& node) const {
    one(node.left);
    one(node.right);
  }
  void operator()(Concatenation& node) const { all(node.parts); }
  void operator()(Comparison& node) const {
    one(node.first);
    for (auto& [relation, operand] : node.rest) one(operand);
  }
  void operator()(Conditional& node) const {
    one(node.test);
    one(node.value);
    one(node.otherwise);
  }
  void operator()(Attribute& node) const { one(node.object); }
  void operator()(Item& node) const {
    one(node.object);
    one(node.index);
  }
  void operator()(Slice& node) const {
    one(node.object);
    one(node.start);
    one(node.stop);
    one(node.step);
  }
  void operator()(Call& node) const {
    one(node.callee);
    all(node.arguments);
  }
  void operator()(FilterCall& node) const {
    one(node.input);
    all(node.arguments);
  }
  void operator()(TestCall& node) const {
    one(node.input);
    all(node.arguments);
  }
};

/// Calls body(name) for the names that the expression reads.
template <typename Body>
void for_each_name(Expression& expression, const Body& body) {
  if (auto* name = std::get_if<Name>(&expression.node)) body(*name);
  const auto inner = [&](Expression& child) { for_each_name(child, body); };
  std::visit(ForEachChild<const decltype(inner)>{inner}, expression.node);
}

/// Calls one of both for the names and the attributes of namespaces that are assigned to.
template <typename OnName, typename OnAttribute>
void for_each_target(Target& target, const OnName& on_name, const OnAttribute& on_attribute) {
  if (auto* name = std::get_if<Name>(&target.node)) return on_name(*name);
  if (auto* attribute = std::get_if<NamespaceAttribute>(&target.node))
    return on_attribute(*attribute);
  for (Target& part : std::get<std::vector<Target>>(target.node))
    for_each_target(part, on_name, on_attribute);
}

/// Calls body(name) for the names that statements read, also in parts of their own.
template <typename Body>
void for_each_name(Block& block, const Body& body);

/// Visits the expressions and blocks in a statement.
template <typename Body>
struct ForEachNameInStatement {
  const Body& body;

  void one(ExpressionPtr& expression) const {
    if (expression != nullptr) for_each_name(*expression, body);
  }
  void one(MacroDefinition& macro) const {
    for (Parameter& parameter : macro.parameters) one(parameter.otherwise);
    for_each_name(macro.body, body);
  }

  void operator()(Data&) const {}
  void operator()(Break&) const {}
  void operator()(Continue&) const {}
  void operator()(Output& node) const {
    for (ExpressionPtr& value : node.values) one(value);
  }
  void operator()(If& node) const {
    for (auto& [test, block] : node.branches) {
      one(test);
      for_each_name(block, body);
    }
    for_each_name(node.otherwise, body);
  }
  void operator()(For& node) const {
    one(node.iterable);
    one(node.test);
    for_each_name(node.body, body);
    for_each_name(node.otherwise, body);
  }
  void operator()(Set& node) const { one(node.value); }
  void operator()(SetBlock& node) const {
    one(node.filter);
    for_each_name(node.body, body);
  }
  void operator()(With& node) const {
    for (auto& [target, value] : node.assignments) one(value);
    for_each_name(node.body, body);
  }
  void operator()(FilterBlock& node) const {
    one(node.filter);
    for_each_name(node.body, body);
  }
  void operator()(MacroStatement& node) const { one(*node.definition); }
  void operator()(CallBlock& node) const {
    one(node.call);
    one(*node.definition);
  }
  void operator()(Generation& node) const { one(*node.definition); }
};

template <typename Body>
void for_each_name(Block& block, const Body& body) {
  for (Statement& statement : block) std::visit(ForEachNameInStatement<Body>{body}, statement.node);
}

}  // namespace meshloom::text::chat
