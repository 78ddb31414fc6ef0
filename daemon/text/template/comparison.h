// SPDX-License-Identifier: Apache-2.0
// Comparing values, as Python's ==, < and `in` do.
#pragma once

#include <cstddef>
#include <string_view>

#include "daemon/text/template/value.h"

namespace meshloom::text::chat {

/// Tells whether a == b.
bool equal(Work& work, const Value& a, const Value& b);
/// Tells whether a < b; `sign` is that of the operator, for errors. Throws where they have no
/// order.
bool less(Work& work, const Value& a, const Value& b, const char* sign = "<");
/// Tells whether a <= b.
bool less_or_equal(Work& work, const Value& a, const Value& b, const char* sign = "<=");
/// Tells whether the item is in the container.
bool contains(Work& work, const Value& container, const Value& item);
/// Does what Python's `is` does. Throws where that is a matter of chance there.
bool same_object(Work& work, const Value& a, const Value& b);
bool truth(Work& work, const Value& value);

/// Returns a number that is equal for equal values. Throws for what is no key of a dict.
std::size_t hash_of(Work& work, const Value& value);
std::size_t hash_of(std::string_view text);
/// Tells whether it may be the key of a dict.
bool is_hashable(Work& work, const Value& key);

}  // namespace meshloom::text::chat
