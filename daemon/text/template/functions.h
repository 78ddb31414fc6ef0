// SPDX-License-Identifier: Apache-2.0
// The functions that every template may call: range, dict, namespace, raise_exception and
// strftime_now.
#pragma once

#include <optional>
#include <string_view>

#include "daemon/text/template/arguments.h"
#include "daemon/text/template/value.h"

namespace meshloom::text::chat {

std::optional<Function> find_function(std::string_view name);
Value call_function(Work& work, Function function, const Arguments& arguments);

/// Throws for names of attributes that a namespace may not have.
void check_attribute_name(Work& work, std::string_view name);

}  // namespace meshloom::text::chat
