// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/character_map.h"

#include <cstring>

#include "daemon/base/utf8.h"
#include "kernels/base/error.h"

namespace meshloom::text {
namespace {

/// A hostile map could have a text of any length replaced for each of its characters.
constexpr std::size_t kMostNormalBytes = 4096;

bool has_value(std::uint32_t unit) { return (unit >> 8 & 1) != 0; }
std::uint32_t value_of(std::uint32_t unit) { return unit & 0x7FFFFFFFu; }
std::uint32_t label_of(std::uint32_t unit) { return unit & 0x800000FFu; }
std::uint32_t offset_of(std::uint32_t unit) { return (unit >> 10) << ((unit & 1u << 9) >> 6); }

}  // namespace

CharacterMap::CharacterMap(std::string_view bytes) {
  if (bytes.empty()) return;
  std::uint32_t trie_bytes = 0;
  check(bytes.size() > sizeof trie_bytes, "the map of characters has {} bytes: expected a trie",
        bytes.size());
  std::memcpy(&trie_bytes, bytes.data(), sizeof trie_bytes);
  bytes.remove_prefix(sizeof trie_bytes);
  check(
      trie_bytes > 0 && trie_bytes % sizeof(std::uint32_t) == 0 && trie_bytes < bytes.size() &&
          bytes.back() == '\0',
      "the map of characters has a trie of {} bytes in {}: expected whole units, and normal forms "
      "that end with a zero",
      trie_bytes, bytes.size());
  units_.resize(trie_bytes / sizeof(std::uint32_t));
  std::memcpy(units_.data(), bytes.data(), trie_bytes);
  normals_ = bytes.substr(trie_bytes);
}

template <typename Found>
void CharacterMap::for_each_match(std::string_view text, Budget& budget, Found&& found) const {
  if (units_.empty()) return;
  const auto unit_at = [&](std::size_t at) {
    check(at < units_.size(), "the map of characters points outside its trie");
    return units_[at];
  };
  std::size_t at = offset_of(unit_at(0));
  // The trie may lead in a circle as long as the text goes on.
  for (std::size_t i = 0; i < text.size(); ++i) {
    budget.spend(1, "normalizer");
    const auto byte = static_cast<unsigned char>(text[i]);
    at ^= byte;
    const std::uint32_t unit = unit_at(at);
    if (label_of(unit) != byte) break;
    at ^= offset_of(unit);
    if (!has_value(unit)) continue;
    const std::uint32_t normal = value_of(unit_at(at));
    check(normal < normals_.size(), "the map of characters points outside its normal forms");
    const std::size_t bytes = ::strnlen(normals_.c_str() + normal, kMostNormalBytes + 1);
    check(bytes <= kMostNormalBytes,
          "the map of characters has a normal form of more than {} bytes", kMostNormalBytes);
    budget.spend(bytes / 8, "normalizer");
    if (!found({i + 1, std::string_view(normals_).substr(normal, bytes)})) return;
  }
}

CharacterMap::Match CharacterMap::longest(std::string_view text, Budget& budget) const {
  Match match;
  for_each_match(text, budget, [&](const Match& longer) {
    match = longer;
    return true;
  });
  check(
      match.length == text.size() || match.length == 0 || !base::utf8_continues(text[match.length]),
      "the map of characters replaces a part of a character");
  return match;
}

CharacterMap::Match CharacterMap::shortest(std::string_view text, Budget& budget) const {
  Match match;
  for_each_match(text, budget, [&](const Match& first) {
    match = first;
    return false;
  });
  return match;
}

}  // namespace meshloom::text
