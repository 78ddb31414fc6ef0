// SPDX-License-Identifier: Apache-2.0
// The tests of templates, by name: {% if value is name(arguments) %}.
#pragma once

#include <string_view>

#include "daemon/text/template/arguments.h"
#include "daemon/text/template/value.h"

namespace meshloom::text::chat {

struct Test {
  std::string_view name;
  bool (*holds)(Work& work, const Value& value, const Arguments& arguments);
};

/// Returns null where there is none of the name.
const Test* find_test(std::string_view name);

}  // namespace meshloom::text::chat
