// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/vocabulary.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <iterator>
#include <random>

namespace meshloom::text {
namespace {

constexpr std::size_t kMostBytesOfTokens = std::size_t{32} << 20;

}  // namespace

VocabularyLimits::VocabularyLimits(const JsonPart& part, std::size_t tokens) : part_(part) {
  if (tokens >= static_cast<std::size_t>(kMostTokens))
    part.too_large(fmt::format("has {} tokens, expected less than {}", tokens, kMostTokens));
}

void VocabularyLimits::add(std::size_t token_bytes) {
  if (token_bytes > kMostPartBytes)
    part_.too_large(
        fmt::format("has a token of {} bytes, expected at most {}", token_bytes, kMostPartBytes));
  bytes_ += token_bytes;
  if (bytes_ > kMostBytesOfTokens)
    part_.too_large(fmt::format("has tokens of more than {} bytes", kMostBytesOfTokens));
}

Vocabulary::Vocabulary(const JsonPart& part, Budget& budget) {
  if (!part.json().is_object()) part.refuse("expected an object of tokens and their ids");
  VocabularyLimits limits(part, part.json().size());
  ids_.reserve(part.json().size());
  for (const auto& [token, id] : part.json().items()) {
    limits.add(token.size());
    budget.spend(8 + token.size() / 8, "model");
    add(token, static_cast<TokenId>(
                   JsonPart(id, fmt::format("{}.{}", part.path(), token)).number(kMostTokens - 1)));
  }
}

std::size_t Vocabulary::Hash::operator()(std::string_view text) const {
  static const std::uint64_t seed = [] {
    std::random_device random;
    return std::uint64_t{random()} << 32 | random();
  }();
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
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

std::uint32_t sentencepiece_bytes(std::string_view token) {
  constexpr std::string_view kBlank = "\xE2\x96\x81";
  if (token.size() == 6 && token.starts_with("<0x") && token.back() == '>') return 1;
  std::size_t bytes = token.size();
  for (std::size_t at = 0; (at = token.find(kBlank, at)) != std::string_view::npos;
       at += kBlank.size())
    bytes -= kBlank.size() - 1;
  return static_cast<std::uint32_t>(bytes);
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
