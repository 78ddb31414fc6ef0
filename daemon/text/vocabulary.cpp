// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace meshloom::text {

Vocabulary::Vocabulary(const JsonPart& part) {
  if (!part.json().is_object()) part.refuse("expected an object of tokens and their ids");
  ids_.reserve(part.json().size());
  for (const auto& [token, id] : part.json().items())
    add(token, static_cast<TokenId>(
                   JsonPart(id, fmt::format("{}.{}", part.path(), token)).number(kMostTokens - 1)));
}

void Vocabulary::add(std::string_view token, TokenId id) {
  const auto place = static_cast<std::size_t>(id);
  if (place >= tokens_.size()) tokens_.resize(place + 1);
  const auto [at, is_new] = ids_.emplace(token, id);
  at->second = id;
  tokens_[place] = &at->first;
}

std::array<TokenId, 256> Vocabulary::byte_tokens() const {
  std::array<TokenId, 256> tokens;
  for (std::size_t byte = 0; byte < tokens.size(); ++byte)
    tokens[byte] = find(fmt::format("<0x{:02X}>", byte)).value_or(-1);
  return tokens;
}

bool append_bytes(std::string_view text, const std::array<TokenId, 256>& byte_tokens,
                  std::vector<TokenId>& out) {
  const auto token = [&](char byte) { return byte_tokens[static_cast<unsigned char>(byte)]; };
  if (std::any_of(text.begin(), text.end(), [&](char byte) { return token(byte) < 0; }))
    return false;
  std::transform(text.begin(), text.end(), std::back_inserter(out), token);
  return true;
}

}  // namespace meshloom::text
