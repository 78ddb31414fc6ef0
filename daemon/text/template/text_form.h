// SPDX-License-Identifier: Apache-2.0
// Values as text: Python's str() and repr().
#pragma once

#include <string>
#include <string_view>

#include "daemon/text/template/value.h"

namespace meshloom::text::chat {

/// Appends str(value). Throws for what Python shows by an address in memory.
void append_str(Work& work, std::string& out, const Value& value);
void append_repr(Work& work, std::string& out, const Value& value);
/// Returns str(value) as a value; a text is itself.
Value str(Work& work, const Value& value);
/// Returns the bytes of str(value); `storage` holds them unless it is a text.
std::string_view str_bytes(Work& work, const Value& value, std::string& storage);

/// Returns the shortest digits that are the number, as Python writes them: 1.0, 1e-05, inf, nan.
std::string float_repr(double value);

}  // namespace meshloom::text::chat
