// SPDX-License-Identifier: Apache-2.0
// How the renderer evaluates expressions.
#include "daemon/text/template/comparison.h"
#include "daemon/text/template/operators.h"
#include "daemon/text/template/renderer.h"
#include "daemon/text/template/text_form.h"

namespace meshloom::text::chat {

Value Renderer::evaluate(const Expression& expression, const FramePtr& frame) {
  const Work::Level level(work_);
  work_.spend(1);
  const int before = std::exchange(work_.line, expression.line);
  Value value =
      std::visit([&](const auto& node) { return value_of(node, frame); }, expression.node);
  work_.line = before;
  return value;
}

Value Renderer::value_of(const Constant& node, const FramePtr&) { return node.value; }

Value Renderer::value_of(const Name& node, const FramePtr& frame) {
  const Value& value = slot(node.variable, *frame);
  if (value.is_missing()) return make_undefined(fmt::format("'{}' is undefined", node.name));
  return value;
}

Value Renderer::value_of(const SequenceLiteral& node, const FramePtr& frame) {
  Values items;
  items.reserve(node.items.size());
  for (const ExpressionPtr& item : node.items) items.push_back(evaluate(*item, frame));
  return make_sequence(work_, node.kind, std::move(items));
}

Value Renderer::value_of(const DictLiteral& node, const FramePtr& frame) {
  Dict dict;
  for (const auto& [key, value] : node.entries) {
    Value evaluated = evaluate(*key, frame);
    dict.assign(work_, std::move(evaluated), evaluate(*value, frame));
  }
  return make_dict(work_, std::move(dict));
}

Value Renderer::value_of(const Unary& node, const FramePtr& frame) {
  const Value operand = evaluate(*node.operand, frame);
  if (node.op == Unary::Operator::kNot) return !truth(work_, operand);
  return node.op == Unary::Operator::kNegative ? negative(work_, operand)
                                               : positive(work_, operand);
}

Value Renderer::value_of(const Binary& node, const FramePtr& frame) {
  const Value left = evaluate(*node.left, frame);
  return arithmetic(work_, node.op, left, evaluate(*node.right, frame));
}

Value Renderer::value_of(const Logical& node, const FramePtr& frame) {
  Value left = evaluate(*node.left, frame);
  return truth(work_, left) == node.is_or ? left : evaluate(*node.right, frame);
}

Value Renderer::value_of(const Concatenation& node, const FramePtr& frame) {
  std::string text;
  for (const ExpressionPtr& part : node.parts) append_str(work_, text, evaluate(*part, frame));
  return make_text(work_, std::move(text));
}

bool Renderer::related(Relation relation, const Value& a, const Value& b) {
  switch (relation) {
    case Relation::kEqual: return equal(work_, a, b);
    case Relation::kNotEqual: return !equal(work_, a, b);
    case Relation::kLess: return less(work_, a, b);
    case Relation::kLessEqual: return less_or_equal(work_, a, b);
    case Relation::kGreater: return less(work_, b, a, ">");
    case Relation::kGreaterEqual: return less_or_equal(work_, b, a, ">=");
    case Relation::kIn: return contains(work_, b, a);
    case Relation::kNotIn: break;
  }
  return !contains(work_, b, a);
}

/// a < b < c holds where both do.
Value Renderer::value_of(const Comparison& node, const FramePtr& frame) {
  Value left = evaluate(*node.first, frame);
  for (const auto& [relation, operand] : node.rest) {
    Value right = evaluate(*operand, frame);
    if (!related(relation, left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Renderer::value_of(const Conditional& node, const FramePtr& frame) {
  if (truth(work_, evaluate(*node.test, frame))) return evaluate(*node.value, frame);
  if (node.otherwise != nullptr) return evaluate(*node.otherwise, frame);
  return make_undefined(
      "the inline if-expression evaluated to false and no else section was defined.");
}

Value Renderer::value_of(const Attribute& node, const FramePtr& frame) {
  return attribute(work_, evaluate(*node.object, frame), node.name);
}

Value Renderer::value_of(const Item& node, const FramePtr& frame) {
  const Value object = evaluate(*node.object, frame);
  return item(work_, object, evaluate(*node.index, frame));
}

Value Renderer::value_of(const Slice& node, const FramePtr& frame) {
  const Value object = evaluate(*node.object, frame);
  Value bounds[3];
  const Value* given[3] = {};
  const ExpressionPtr* const expressions[] = {&node.start, &node.stop, &node.step};
  for (int i = 0; i < 3; ++i) {
    if (*expressions[i] == nullptr) continue;
    bounds[i] = evaluate(**expressions[i], frame);
    given[i] = &bounds[i];
  }
  return slice(work_, object, given[0], given[1], given[2]);
}

Value Renderer::value_of(const Call& node, const FramePtr& frame) {
  const Value callee = evaluate(*node.callee, frame);
  return call(callee, evaluate_arguments(node.arguments, frame));
}

Value Renderer::value_of(const FilterCall& node, const FramePtr& frame) {
  const Value input = node.input == nullptr ? block_text_ : evaluate(*node.input, frame);
  return node.filter->apply(work_, input, evaluate_arguments(node.arguments, frame));
}

Value Renderer::value_of(const TestCall& node, const FramePtr& frame) {
  const Value input = evaluate(*node.input, frame);
  return node.test->holds(work_, input, evaluate_arguments(node.arguments, frame));
}

Value Renderer::filtered(const Expression& filter, const FramePtr& frame, Value text) {
  const Value before = std::exchange(block_text_, std::move(text));
  Value value = evaluate(filter, frame);
  block_text_ = before;
  return value;
}

}  // namespace meshloom::text::chat
