// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/template/loop.h"

#include "daemon/text/template/work.h"

namespace meshloom::text::chat {

bool Loop::next(Value& element) {
  if (after.has_value()) {
    element = std::move(*after);
    after.reset();
  } else if (!next_element(element)) {
    return false;
  }
  ++index0;
  previous = std::move(current);
  current = element;
  return true;
}

const Value* Loop::peek() {
  if (!after.has_value()) {
    Value element;
    if (!next_element(element)) return nullptr;
    after = std::move(element);
  }
  return &*after;
}

std::size_t Loop::length(Work& work) {
  if (known_length.has_value()) return *known_length;
  // All that are left are taken out, counted and given one by one from here on.
  auto rest = std::make_shared<Values>();
  for (Value element; next_element(element);) append(work, *rest, element);
  known_length = rest->size() + static_cast<std::size_t>(index0 + 1) + (after.has_value() ? 1 : 0);
  next_element = [rest = std::move(rest), i = std::size_t{0}](Value& element) mutable {
    if (i == rest->size()) return false;
    element = (*rest)[i++];
    return true;
  };
  return *known_length;
}

std::optional<Value> loop_attribute(Work& work, Loop& loop, std::string_view name) {
  if (name == "index") return loop.index0 + 1;
  if (name == "index0") return loop.index0;
  if (name == "first") return loop.index0 == 0;
  if (name == "last") return loop.peek() == nullptr;
  if (name == "length") return static_cast<std::int64_t>(loop.length(work));
  if (name == "revindex") return static_cast<std::int64_t>(loop.length(work)) - loop.index0;
  if (name == "revindex0") return static_cast<std::int64_t>(loop.length(work)) - loop.index0 - 1;
  if (name == "depth") return std::int64_t{loop.depth0} + 1;
  if (name == "depth0") return std::int64_t{loop.depth0};
  if (name == "previtem")
    return loop.index0 == 0 ? make_undefined("there is no previous item") : loop.previous;
  if (name == "nextitem") {
    const Value* next = loop.peek();
    return next == nullptr ? make_undefined("there is no next item") : *next;
  }
  return std::nullopt;
}

}  // namespace meshloom::text::chat
