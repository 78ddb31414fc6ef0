// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/byte_tokenizer.h"

#include "daemon/text/utf8.h"

namespace meshloom::text {

void ByteTokenizer::encode(std::string_view bytes, bool /*with_template*/, WordCache& /*cache*/,
                           Budget& /*budget*/, std::vector<TokenId>& out) const {
  out.reserve(out.size() + bytes.size());
  for (const char byte : bytes) out.push_back(static_cast<unsigned char>(byte));
}

std::string ByteTokenizer::decode(std::span<const TokenId> tokens, bool /*skip_special*/,
                                  Budget& /*budget*/) const {
  std::string bytes;
  for (const TokenId token : tokens)
    if (token >= 0 && token < end()) bytes.push_back(static_cast<char>(token));
  std::string storage;
  return std::string(valid_utf8(bytes, storage));
}

std::optional<TokenId> ByteTokenizer::find(std::string_view token) const {
  if (token.size() != 1) return std::nullopt;
  return static_cast<unsigned char>(token.front());
}

}  // namespace meshloom::text
