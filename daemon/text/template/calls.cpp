// SPDX-License-Identifier: Apache-2.0
// How the renderer calls macros, functions, methods and recursive loops.
#include "daemon/text/template/functions.h"
#include "daemon/text/template/methods.h"
#include "daemon/text/template/renderer.h"

namespace meshloom::text::chat {

Arguments Renderer::evaluate_arguments(const CallArguments& given, const FramePtr& frame) {
  Arguments arguments;
  arguments.positional.reserve(given.positional.size());
  for (const ExpressionPtr& value : given.positional)
    arguments.positional.push_back(evaluate(*value, frame));
  for (const auto& [name, value] : given.named)
    arguments.named.emplace_back(name, evaluate(*value, frame));
  if (given.more_positional != nullptr) {
    const Value more = evaluate(*given.more_positional, frame);
    const Next next = iterate(work_, more);
    for (Value value; next(value);) append(work_, arguments.positional, value);
  }
  if (given.more_named == nullptr) return arguments;
  const Value more = evaluate(*given.more_named, frame);
  if (more.dict() == nullptr)
    work_.fail("argument after ** must be a mapping, not {}", more.type_name());
  for (const auto& [key, value] : more.dict()->entries()) {
    work_.spend(1 + arguments.named.size());
    if (key.text() == nullptr) work_.fail("keywords must be strings");
    for (const auto& [name, other] : arguments.named)
      if (name == key.text()->bytes) work_.fail("got multiple values for argument '{}'", name);
    arguments.named.emplace_back(key.text()->bytes, value);
  }
  return arguments;
}

Value Renderer::call(const Value& callee, Arguments arguments) {
  work_.spend(1);
  if (const Method* method = callee.method()) return call_method(work_, *method, arguments);
  if (const Macro* macro = callee.macro()) return call_macro(*macro, std::move(arguments));
  if (const Function* function = callee.get<Function>()) {
    Value value = call_function(work_, *function, arguments);
    if (const auto* names = value.get<std::shared_ptr<Namespace>>()) {
      constexpr std::uint64_t kNamespaceBytes = 256;
      work_.check_bytes((kept_frames_.size() + namespaces_.size() + 1) * kNamespaceBytes);
      namespaces_.push_back(*names);
    }
    return value;
  }
  refuse_undefined(work_, callee);
  Loop* loop = callee.loop();
  if (loop == nullptr) work_.fail("'{}' object is not callable", callee.type_name());
  if (loop->recursive == nullptr)
    work_.fail("The loop must have the 'recursive' marker to be called recursively.");
  const Parameters parameters(work_, "loop", arguments, {"iterable"}, 1);
  Sink sink;
  const Work::Writing writing(work_, sink.text);
  run_loop(*loop->recursive, loop->frame, sink, *parameters.at(0), loop->depth0 + 1);
  return make_text(work_, std::move(sink.text));
}

Value Renderer::call_macro(const Macro& macro, Arguments arguments) {
  const Work::Level level(work_);
  const FramePtr frame = enter(macro.definition->scope, macro.frame);
  bind(macro, arguments, frame);
  Sink sink;
  const Work::Writing writing(work_, sink.text);
  execute(macro.definition->body, frame, sink);
  return make_text(work_, std::move(sink.text));
}

/// Fills the parameters: first those by place, then those by name, then what stands for them.
void Renderer::bind(const Macro& macro, Arguments& arguments, const FramePtr& frame) {
  const std::vector<Parameter>& parameters = macro.definition->parameters;
  const std::size_t by_place = std::min(parameters.size(), arguments.positional.size());
  bool found_caller = by_place == parameters.size() && macro.definition->has_caller_parameter;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    Value value;
    if (i < by_place) {
      value = arguments.positional[i];
    } else {
      const auto named =
          std::find_if(arguments.named.begin(), arguments.named.end(),
                       [&](const auto& one) { return one.first == parameters[i].name; });
      found_caller = found_caller || parameters[i].name == "caller";
      if (named != arguments.named.end()) {
        value = std::move(named->second);
        arguments.named.erase(named);
      }
    }
    slot(parameters[i].variable, *frame) = std::move(value);
  }
  bind_others(macro, arguments, *frame, found_caller);
  for (const Parameter& parameter : parameters) {
    Value& value = slot(parameter.variable, *frame);
    if (!value.is_missing()) continue;
    Value otherwise =
        parameter.otherwise != nullptr
            ? evaluate(*parameter.otherwise, frame)
            : make_undefined(fmt::format("parameter '{}' was not provided", parameter.name));
    slot(parameter.variable, *frame) = std::move(otherwise);
  }
}

/// What is left of the arguments goes to caller, kwargs and varargs, where the macro has them.
void Renderer::bind_others(const Macro& macro, Arguments& arguments, Frame& frame,
                           bool found_caller) {
  const MacroDefinition& definition = *macro.definition;
  if (definition.caller.has_value() && !found_caller) {
    const auto named = std::find_if(arguments.named.begin(), arguments.named.end(),
                                    [](const auto& one) { return one.first == "caller"; });
    Value caller = make_undefined("No caller defined");
    if (named != arguments.named.end()) {
      caller = std::move(named->second);
      arguments.named.erase(named);
    }
    slot(*definition.caller, frame) = std::move(caller);
  }
  if (definition.kwargs.has_value()) {
    Dict rest;
    for (const auto& [name, value] : arguments.named)
      rest.assign(work_, make_text(work_, name), value);
    slot(*definition.kwargs, frame) = make_dict(work_, std::move(rest));
  } else if (!arguments.named.empty()) {
    work_.fail("macro '{}' takes no keyword argument '{}'", definition.name,
               arguments.named.front().first);
  }
  const std::size_t taken = definition.parameters.size();
  Values rest;
  for (std::size_t i = taken; i < arguments.positional.size(); ++i)
    rest.push_back(arguments.positional[i]);
  if (definition.varargs.has_value())
    slot(*definition.varargs, frame) = make_tuple(work_, std::move(rest));
  else if (!rest.empty())
    work_.fail("macro '{}' takes not more than {} argument(s)", definition.name, taken);
}

}  // namespace meshloom::text::chat
