// SPDX-License-Identifier: Apache-2.0
// Normal forms NFD, NFC, NFKD and NFKC (Unicode Standard Annex 15), of the version of the generated
// tables.
#pragma once

#include <string>
#include <string_view>

namespace meshloom::text {

/// Makes the canonical decomposition; `text` is valid UTF-8.
std::string to_nfd(std::string_view text);
/// Makes the canonical decomposition, then composition.
std::string to_nfc(std::string_view text);
/// These two do the same with the compatibility decomposition.
std::string to_nfkd(std::string_view text);
std::string to_nfkc(std::string_view text);

}  // namespace meshloom::text
