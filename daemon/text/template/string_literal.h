// SPDX-License-Identifier: Apache-2.0
// What stands between the quotes of a string of a template, as text.
#pragma once

#include <string>
#include <string_view>

#include "daemon/text/template/source.h"

namespace meshloom::text::chat {

/// Decodes the literal as Python does ("unicode-escape" of the ASCII form of it). Refuses at the
/// line what Python refuses, halves of surrogate pairs, and names of characters (\N{...}).
std::string unescaped(std::string_view literal, const SourceText& source, int line);

}  // namespace meshloom::text::chat
