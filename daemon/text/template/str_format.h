// SPDX-License-Identifier: Apache-2.0
// Python's str.format().
#pragma once

#include <string>
#include <string_view>

#include "daemon/text/template/arguments.h"

namespace meshloom::text::chat {

/// Fills in fields by number, by name and in order, with attributes and items, !r and !s, and
/// formats of texts, integers and floats. Formats that are made of fields are refused.
std::string str_format(Work& work, std::string_view format, const Arguments& arguments);

}  // namespace meshloom::text::chat
