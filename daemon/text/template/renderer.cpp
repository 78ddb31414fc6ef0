// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/template/renderer.h"

#include "daemon/text/template/comparison.h"
#include "daemon/text/template/python_text.h"
#include "daemon/text/template/text_form.h"

namespace meshloom::text::chat {

Renderer::~Renderer() {
  for (const FramePtr& frame : kept_frames_) frame->slots.clear();
  for (const std::shared_ptr<Namespace>& names : namespaces_) names->attributes.clear();
}

Sink Renderer::render() {
  Sink sink;
  const Work::Writing writing(work_, sink.text);
  execute(syntax_.body, enter(syntax_.scope, nullptr), sink);
  return sink;
}

Renderer::Flow Renderer::execute(const Block& block, const FramePtr& frame, Sink& sink) {
  const Work::Level level(work_);
  for (const Statement& statement : block) {
    work_.spend(1);
    work_.line = statement.line;
    const Flow flow =
        std::visit([&](const auto& node) { return run(node, frame, sink); }, statement.node);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Renderer::Flow Renderer::run(const Data& node, const FramePtr&, Sink& sink) {
  append(work_, sink.text, node.text);
  return Flow::kNext;
}

Renderer::Flow Renderer::run(const Output& node, const FramePtr& frame, Sink& sink) {
  for (const ExpressionPtr& value : node.values)
    append_str(work_, sink.text, evaluate(*value, frame));
  return Flow::kNext;
}

Renderer::Flow Renderer::run(const If& node, const FramePtr& frame, Sink& sink) {
  for (const auto& [test, block] : node.branches)
    if (truth(work_, evaluate(*test, frame))) return execute(block, frame, sink);
  return execute(node.otherwise, frame, sink);
}

Renderer::Flow Renderer::run(const For& node, const FramePtr& frame, Sink& sink) {
  return run_loop(node, frame, sink, evaluate(*node.iterable, frame), 0);
}

Renderer::Flow Renderer::run(const Set& node, const FramePtr& frame, Sink&) {
  check_namespaces(node.target, *frame);
  assign(node.target, evaluate(*node.value, frame), *frame);
  return Flow::kNext;
}

Renderer::Flow Renderer::run(const SetBlock& node, const FramePtr& frame, Sink&) {
  const FramePtr inner = enter(node.scope, frame);
  Sink captured;
  const Work::Writing writing(work_, captured.text);
  if (const Flow flow = execute(node.body, inner, captured); flow != Flow::kNext) return flow;
  Value text = make_text(work_, std::move(captured.text));
  if (node.filter != nullptr) text = filtered(*node.filter, inner, std::move(text));
  check_namespaces(node.target, *frame);
  assign(node.target, text, *frame);
  return Flow::kNext;
}

Renderer::Flow Renderer::run(const With& node, const FramePtr& frame, Sink& sink) {
  const FramePtr inner = enter(node.scope, frame);
  for (const auto& [target, value] : node.assignments)
    assign(target, evaluate(*value, frame), *inner);
  return execute(node.body, inner, sink);
}

Renderer::Flow Renderer::run(const FilterBlock& node, const FramePtr& frame, Sink& sink) {
  const FramePtr inner = enter(node.scope, frame);
  Sink captured;
  const Work::Writing writing(work_, captured.text);
  if (const Flow flow = execute(node.body, inner, captured); flow != Flow::kNext) return flow;
  Value text = make_text(work_, std::move(captured.text));
  append_str(work_, sink.text, filtered(*node.filter, inner, std::move(text)));
  return Flow::kNext;
}

Renderer::Flow Renderer::run(const MacroStatement& node, const FramePtr& frame, Sink&) {
  slot(node.name.variable, *frame) = new_macro(*node.definition, frame);
  return Flow::kNext;
}

Renderer::Flow Renderer::run(const CallBlock& node, const FramePtr& frame, Sink& sink) {
  const Value caller = new_macro(*node.definition, frame);
  const Call& call_node = std::get<Call>(node.call->node);
  const Value callee = evaluate(*call_node.callee, frame);
  Arguments arguments = evaluate_arguments(call_node.arguments, frame);
  arguments.named.emplace_back("caller", caller);
  append_str(work_, sink.text, call(callee, std::move(arguments)));
  return Flow::kNext;
}

Renderer::Flow Renderer::run(const Generation& node, const FramePtr& frame, Sink& sink) {
  const Value text = call_macro({node.definition.get(), frame}, {});
  const std::size_t begin = sink.text.size();
  append_str(work_, sink.text, text);
  sink.generated.emplace_back(begin, sink.text.size());
  return Flow::kNext;
}

Renderer::Flow Renderer::run(const Break&, const FramePtr&, Sink&) { return Flow::kBreak; }
Renderer::Flow Renderer::run(const Continue&, const FramePtr&, Sink&) { return Flow::kContinue; }

}  // namespace meshloom::text::chat
