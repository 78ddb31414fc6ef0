// SPDX-License-Identifier: Apache-2.0
// Loop: the variable `loop` of a for loop: where it is, what is before and behind.
#pragma once

#include <memory>
#include <optional>

#include "daemon/text/template/iteration.h"
#include "daemon/text/template/value.h"

namespace meshloom::text::chat {

struct For;

struct Loop {
  Next next_element;
  /// The sequence that it runs over has this length, if that is known before it is run over.
  std::optional<std::size_t> known_length;
  std::int64_t index0 = -1;
  Value current, previous;
  /// The next element, where it was looked at before its turn.
  std::optional<Value> after;
  std::optional<Values> changed_from;
  int depth = 1;  ///< of the value

  // --- Of a loop that is marked recursive; null and 0 otherwise.
  const For* recursive = nullptr;
  std::shared_ptr<Frame> frame;
  int depth0 = 0;

  /// Moves on; false behind the last element.
  bool next(Value& element);
  /// Looks at the next element; null behind the last.
  const Value* peek();
  std::size_t length(Work& work);
};

/// Returns an attribute (index, last, previtem, ...), or nothing where a loop has no such one.
std::optional<Value> loop_attribute(Work& work, Loop& loop, std::string_view name);

}  // namespace meshloom::text::chat
