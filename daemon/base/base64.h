// SPDX-License-Identifier: Apache-2.0
// Base64 (RFC 4648, section 4).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace meshloom::base {

/// Returns the bytes of a text with its padding; nothing for any other text, white space included.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace meshloom::base
