// SPDX-License-Identifier: Apache-2.0
// How the renderer holds the names of a template.
#include "daemon/text/template/functions.h"
#include "daemon/text/template/json_values.h"
#include "daemon/text/template/renderer.h"

namespace meshloom::text::chat {

FramePtr Renderer::enter(const Scope& scope, const FramePtr& outer) {
  auto frame = std::make_shared<Frame>();
  frame->parent = outer;
  load(scope, *frame);
  return frame;
}

/// The frame at the beginning of its part.
void Renderer::load(const Scope& scope, Frame& frame) {
  work_.spend(1 + static_cast<std::uint64_t>(scope.slots));
  const std::uint64_t bytes = static_cast<std::uint64_t>(scope.slots) * sizeof(Value);
  if (!frame.hold.has_value()) frame.hold.emplace(work_.budget(), bytes, "chat template");
  frame.slots.clear();
  frame.slots.resize(static_cast<std::size_t>(scope.slots));
  for (const Load& one : scope.loads)
    frame.slots[static_cast<std::size_t>(one.slot)] =
        one.from == Load::From::kOuter ? slot(one.outer, frame) : context_value(one.name);
}

Value& Renderer::slot(const Variable& variable, Frame& frame) {
  Frame* holder = &frame;
  for (int i = 0; i < variable.frames; ++i) holder = holder->parent.get();
  return holder->slots[static_cast<std::size_t>(variable.slot)];
}

/// What the template is given under the name, else a function, else nothing.
Value Renderer::context_value(const std::string& name) {
  if (const auto known = context_.find(name); known != context_.end()) return known->second;
  Value value;
  if (const auto given = variables_.find(name); given != variables_.end())
    value = value_of_json(work_, *given);
  else if (const std::optional<Function> function = find_function(name))
    value = *function;
  context_.emplace(name, value);
  return value;
}

/// Jinja looks before it evaluates what is assigned.
void Renderer::check_namespaces(const Target& target, Frame& frame) {
  if (const auto* attribute = std::get_if<NamespaceAttribute>(&target.node)) {
    if (slot(attribute->name.variable, frame).name_space() == nullptr)
      work_.fail("cannot assign the attribute '{}' on '{}', which is no namespace",
                 attribute->attribute, attribute->name.name);
    check_attribute_name(work_, attribute->attribute);
  } else if (const auto* parts = std::get_if<std::vector<Target>>(&target.node)) {
    for (const Target& part : *parts) check_namespaces(part, frame);
  }
}

void Renderer::assign(const Target& target, const Value& value, Frame& frame) {
  work_.spend(1);
  if (const Name* name = std::get_if<Name>(&target.node)) {
    slot(name->variable, frame) = value;
  } else if (const auto* attribute = std::get_if<NamespaceAttribute>(&target.node)) {
    Namespace& names = *slot(attribute->name.variable, frame).name_space();
    if (Value* known = names.find(attribute->attribute))
      *known = value;
    else
      names.attributes.emplace_back(attribute->attribute, value);
  } else {
    const auto& parts = std::get<std::vector<Target>>(target.node);
    const Values values = elements_of(work_, value);
    if (values.size() != parts.size())
      work_.fail("{} values to unpack, expected {}", values.size(), parts.size());
    for (std::size_t i = 0; i < parts.size(); ++i) assign(parts[i], values[i], frame);
  }
}

Value Renderer::new_macro(const MacroDefinition& definition, const FramePtr& frame) {
  keep(frame);
  return std::make_shared<const Macro>(Macro{&definition, frame});
}

void Renderer::keep(const FramePtr& frame) {
  if (!kept_frames_.empty() && kept_frames_.back() == frame) return;
  constexpr std::uint64_t kFrameBytes = 256;
  work_.check_bytes((kept_frames_.size() + namespaces_.size() + 1) * kFrameBytes);
  kept_frames_.push_back(frame);
}

}  // namespace meshloom::text::chat
