// SPDX-License-Identifier: Apache-2.0
// Vocabulary: tokens by their ids and ids by their tokens.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "daemon/text/json_part.h"

namespace meshloom::text {

using TokenId = std::int32_t;

/// Ids lie below this; there may be holes.
/// The largest that are published have a million.
inline constexpr TokenId kMostTokens = 1 << 21;

/// Refuses vocabularies that are larger than any of use, naming the part.
class VocabularyLimits {
 public:
  /// Throws ResourceExhausted for kMostTokens and more.
  VocabularyLimits(const JsonPart& part, std::size_t tokens);
  /// Throws ResourceExhausted for a token of more than kMostPartBytes, and for more than 32 MiB of
  /// them all: the largest that are published have 10.
  void add(std::size_t token_bytes);

 private:
  const JsonPart& part_;
  std::size_t bytes_ = 0;
};

class Vocabulary {
 public:
  Vocabulary() = default;
  /// {token: id, ...}. Tokens have at most kMostPartBytes.
  Vocabulary(const JsonPart& part, Budget& budget);

  /// Adds a token: from then on find() gives this id for the text and token() this text for the id.
  /// Another text that had the id still finds it, another id that had the text still gives it.
  void add(std::string_view token, TokenId id);

  std::optional<TokenId> find(std::string_view token) const {
    const auto at = ids_.find(token);
    return at == ids_.end() ? std::nullopt : std::optional(at->second);
  }
  /// Returns the text of an id; nothing for ids that there are not.
  const std::string* token(TokenId id) const {
    const bool inside = id >= 0 && static_cast<std::size_t>(id) < tokens_.size();
    return inside ? tokens_[static_cast<std::size_t>(id)] : nullptr;
  }
  /// Calls body(text, id) for every text that find() knows, in any order. The texts live as long as
  /// this does, also where it is moved.
  template <typename Body>
  void for_each(Body&& body) const {
    for (const auto& [text, id] : ids_) body(std::string_view(text), id);
  }

  /// Returns the number of tokens, holes not counted.
  std::size_t size() const { return ids_.size(); }
  /// Returns one more than the largest id.
  TokenId end() const { return static_cast<TokenId>(tokens_.size()); }

  /// Returns the tokens "<0x00>" to "<0xFF>", as SentencePiece spells bytes; -1 for those that
  /// there are not.
  std::array<TokenId, 256> byte_tokens() const;

 private:
  struct Hash {
    using is_transparent = void;
    /// Hashes by a number that every process draws: whoever writes a file cannot choose tokens that
    /// all have one place.
    std::size_t operator()(std::string_view text) const;
  };

  std::unordered_map<std::string, TokenId, Hash, std::equal_to<>> ids_;
  std::vector<const std::string*> tokens_;  ///< the keys of ids_, which never move
};

/// Returns the bytes of text that a token stands for as SentencePiece spells them: "<0x0A>" for one
/// byte, U+2581 for a blank.
std::uint32_t sentencepiece_bytes(std::string_view token);

/// Appends the tokens of the bytes of `text`; does nothing and returns false if one of them has
/// none.
bool append_bytes(std::string_view text, const std::array<TokenId, 256>& byte_tokens,
                  std::vector<TokenId>& out);

}  // namespace meshloom::text
