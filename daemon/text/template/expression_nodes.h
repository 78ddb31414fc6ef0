// SPDX-License-Identifier: Apache-2.0
// Making nodes of expressions, whose nesting is bounded.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <utility>

#include "daemon/text/template/source.h"
#include "daemon/text/template/syntax.h"

namespace meshloom::text::chat {

/// Levels of expressions in each other, also of a + b + c, which has two.
inline constexpr int kMostHeight = 400;

/// Returns the height of an expression that holds `parts`, some of which may be null.
inline int height_of(std::initializer_list<const Expression*> parts) {
  int height = 0;
  for (const Expression* part : parts)
    if (part != nullptr) height = std::max(height, part->height);
  return height + 1;
}
inline int height_of(const std::vector<ExpressionPtr>& parts) {
  int height = 0;
  for (const ExpressionPtr& part : parts) height = std::max(height, part->height);
  return height + 1;
}
inline int height_of(const CallArguments& arguments) {
  int height = height_of(arguments.positional);
  for (const auto& [name, value] : arguments.named) height = std::max(height, value->height + 1);
  return std::max(height, height_of({arguments.more_positional.get(), arguments.more_named.get()}));
}

/// Throws ResourceExhausted (TOKENIZER_LIMIT) above kMostHeight.
template <typename Node>
ExpressionPtr make_expression(const SourceText& source, Node node, int line, int height) {
  if (height > kMostHeight)
    source.too_large(line, "an expression has more than {} levels", kMostHeight);
  auto expression = std::make_unique<Expression>();
  expression->node = std::move(node);
  expression->line = line;
  expression->height = height;
  return expression;
}

}  // namespace meshloom::text::chat
