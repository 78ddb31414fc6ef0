// SPDX-License-Identifier: Apache-2.0
// The elements of values, one by one, and how many there are.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <functional>
#include <optional>

#include "daemon/text/template/value.h"

namespace meshloom::text::chat {

/// Gives the next element; false behind the last.
using Next = std::function<bool(Value&)>;

/// Does what Python's iter() does: characters of a text, keys of a dict; none where it is
/// undefined. Takes from an iterator what it gives. Throws with the text, which has {} for the
/// type, where a value has no elements.
Next iterate(Work& work, const Value& value, const char* error = "'{}' object is not iterable");
bool is_iterable(const Value& value);
/// Does what Python's list() does.
Values elements_of(Work& work, const Value& value);
/// Returns Python's len(), or nothing where it has none.
std::optional<std::size_t> size_of(Work& work, const Value& value);
/// Returns Python's len(); throws where there is none.
std::size_t length_of(Work& work, const Value& value);

/// Throws what Jinja throws where an undefined value is used, if it is one.
void refuse_undefined(Work& work, const Value& value);

}  // namespace meshloom::text::chat
