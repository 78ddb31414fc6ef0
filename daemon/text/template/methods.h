// SPDX-License-Identifier: Apache-2.0
// Methods of values: those of Python's str, list, tuple, dict and of Jinja's loop.
#pragma once

#include <string_view>

#include "daemon/text/template/arguments.h"
#include "daemon/text/template/value.h"

namespace meshloom::text::chat {

enum class MethodKind {
  kNone,        ///< Python has none of the name
  kOffered,     ///<
  kChanges,     ///< one that changes the value, which the sandbox of Jinja does not allow
  kNotOffered,  ///< Python has it, this language has not
};

MethodKind method_kind(const Value& object, std::string_view name);
Value make_method(Work& work, const Value& object, std::string_view name);
/// Calls an offered one.
Value call_method(Work& work, const Method& method, const Arguments& arguments);

/// Calls a method of a text. `name` is one that is offered.
Value call_text_method(Work& work, const Value& self, std::string_view name,
                       const Arguments& arguments);
bool has_text_method(std::string_view name);

}  // namespace meshloom::text::chat
