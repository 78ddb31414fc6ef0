// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/base64.h"

#include <openssl/evp.h>

#include <limits>

namespace meshloom::base {

std::optional<std::string> decode_base64(std::string_view text) {
  if (text.empty()) return std::string();
  if (text.size() % 4 != 0 || text.size() > std::numeric_limits<int>::max()) return std::nullopt;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  if (text.find('=') < text.size() - padding) return std::nullopt;
  std::string bytes(text.size() / 4 * 3, '\0');
  const int decoded = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                      reinterpret_cast<const unsigned char*>(text.data()),
                                      static_cast<int>(text.size()));
  // The library drops white space at the ends, and takes padding for zeros.
  if (decoded < 0 || static_cast<std::size_t>(decoded) != bytes.size()) return std::nullopt;
  bytes.resize(bytes.size() - padding);
  return bytes;
}

}  // namespace meshloom::base
