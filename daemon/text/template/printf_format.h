// SPDX-License-Identifier: Apache-2.0
// Python's "..." % values.
#pragma once

#include <string>

#include "daemon/text/template/value.h"

namespace meshloom::text::chat {

/// `values` is a tuple of as many as there are conversions, a dict for %(name)s, or one value.
std::string printf_format(Work& work, const Text& format, const Value& values);

}  // namespace meshloom::text::chat
