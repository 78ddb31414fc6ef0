// SPDX-License-Identifier: Apache-2.0
// How the renderer runs for loops.
#include "daemon/text/template/comparison.h"
#include "daemon/text/template/renderer.h"

namespace meshloom::text::chat {

/// The elements of `next` that pass the loop's test, which runs when an element is asked for.
Next Renderer::passing(const For& node, const FramePtr& frame, Next next) {
  return [this, &node, frame, next = std::move(next), inner = FramePtr()](Value& element) mutable {
    if (inner == nullptr) inner = enter(node.test_scope, frame);
    while (next(element)) {
      assign(node.test_target, element, *inner);
      if (truth(work_, evaluate(*node.test, inner))) return true;
    }
    return false;
  };
}

std::shared_ptr<Loop> Renderer::new_loop(const For& node, const FramePtr& frame,
                                         const Value& iterable, int depth0) {
  auto loop = std::make_shared<Loop>();
  loop->next_element = iterate(work_, iterable);
  loop->depth = depth_around(work_, iterable.depth());
  loop->depth0 = depth0;
  if (node.recursive) {
    loop->recursive = &node;
    loop->frame = frame;
    keep(frame);
  }
  if (node.test != nullptr)
    loop->next_element = passing(node, frame, std::move(loop->next_element));
  else if (iterable.iterator() == nullptr)
    loop->known_length = size_of(work_, iterable);
  return loop;
}

Renderer::Flow Renderer::run_loop(const For& node, const FramePtr& frame, Sink& sink,
                                  const Value& iterable, int depth0) {
  const std::shared_ptr<Loop> loop = new_loop(node, frame, iterable, depth0);
  const auto inner = std::make_shared<Frame>();
  inner->parent = frame;
  // A body that an iteration left early does not count for {% else %}, as in Jinja.
  bool ran = false;
  Flow flow = Flow::kNext;
  for (Value element; flow != Flow::kBreak && loop->next(element);) {
    load(node.scope, *inner);
    slot(node.loop, *inner) = loop;
    assign(node.target, element, *inner);
    flow = execute(node.body, inner, sink);
    ran = ran || flow == Flow::kNext;
  }
  inner->slots.clear();
  inner->slots.resize(static_cast<std::size_t>(node.scope.slots));
  if (ran || node.otherwise.empty()) return Flow::kNext;
  return execute(node.otherwise, enter(node.otherwise_scope, frame), sink);
}

}  // namespace meshloom::text::chat
