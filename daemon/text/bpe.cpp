// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/bpe.h"

#include <algorithm>
#include <cstring>

#include "daemon/base/utf8.h"
#include "daemon/text/utf8.h"
#include "kernels/base/error.h"

namespace meshloom::text {
namespace {

std::string shown(const std::string& token) { return base::printable_text(token, 80, false); }

}  // namespace

WordCache::Entry& WordCache::place_of(std::string_view word) {
  std::uint64_t parts[kLongest / 8] = {};
  std::memcpy(parts, word.data(), word.size());
  std::uint64_t hash = word.size();
  for (const std::uint64_t part : parts) hash = (hash ^ part) * 0x9E3779B97F4A7C15u + (hash >> 29);
  return entries_[hash >> 48];
}

Bpe::Bpe(Vocabulary vocabulary, const std::vector<std::pair<std::string, std::string>>& merges,
         const BpeOptions& options, Budget& budget)
    : vocabulary_(std::move(vocabulary)),
      options_(options),
      byte_tokens_(vocabulary_.byte_tokens()) {
  if (!options.unknown.empty()) unknown_ = vocabulary_.find(options.unknown);
  const auto id_of = [&](const std::string& token) {
    const auto id = vocabulary_.find(token);
    // A file has many merges: the text of an error is made for one that is wrong alone.
    if (!id)
      throw InvalidArgument(
          fmt::format("a merge has \"{}\", which is not in the vocabulary", shown(token)));
    return *id;
  };
  merges_.reserve(merges.size());
  std::uint32_t rank = 0;
  for (const auto& [first, second] : merges) {
    budget.spend(16 + (first.size() + second.size()) / 4, "model");
    if (second.size() < options.continuing_prefix.size())
      throw InvalidArgument(
          fmt::format("merge {} joins \"{}\" with \"{}\", which is shorter than the prefix \"{}\"",
                      rank, shown(first), shown(second), shown(options.continuing_prefix)));
    const auto joined = id_of(first + second.substr(options.continuing_prefix.size()));
    merges_.add(id_of(first), id_of(second), {rank++, joined});
  }
}

void Bpe::encode(std::string_view word, WordCache& cache, Budget& budget,
                 std::vector<TokenId>& out) const {
  if (word.size() > WordCache::kLongest) return encode_anew(word, budget, out);
  WordCache::Entry& entry = cache.place_of(word);
  if (entry.length == word.size() &&
      std::memcmp(entry.word.data(), word.data(), word.size()) == 0) {
    out.insert(out.end(), entry.tokens.begin(), entry.tokens.begin() + entry.count);
    return;
  }
  const std::size_t before = out.size();
  encode_anew(word, budget, out);
  const std::size_t count = out.size() - before;
  if (count > WordCache::kMostTokens) return;
  entry.length = static_cast<std::uint8_t>(word.size());
  entry.count = static_cast<std::uint8_t>(count);
  std::memcpy(entry.word.data(), word.data(), word.size());
  std::copy(out.end() - static_cast<std::ptrdiff_t>(count), out.end(), entry.tokens.begin());
}

void Bpe::encode_anew(std::string_view word, Budget& budget, std::vector<TokenId>& out) const {
  budget.spend(16 * word.size(), "model");
  std::string in_alphabet;
  if (options_.byte_level) word = in_alphabet = to_byte_level(word);
  if (options_.ignore_merges) {
    if (const auto id = vocabulary_.find(word)) {
      out.push_back(*id);
      return;
    }
  }
  std::vector<TokenId> symbols;
  symbols.reserve(word.size());
  add_characters(word, budget, symbols);
  merges_.apply(symbols);
  out.insert(out.end(), symbols.begin(), symbols.end());
}

/// The vocabulary's tokens of single characters. Unknown ones come when the next known character
/// does, after bytes that stand between them, as the package has it.
void Bpe::add_characters(std::string_view word, Budget& budget,
                         std::vector<TokenId>& symbols) const {
  std::size_t unknown = 0;
  const auto add_unknown = [&] {
    symbols.insert(symbols.end(), unknown, unknown_.value_or(0));
    unknown = 0;
  };
  std::string decorated;
  const char* at = word.data();
  const char* const end = at + word.size();
  while (at < end) {
    const bool is_first = at == word.data();
    const std::size_t length = utf8_length(*at);
    std::string_view symbol(at, length);
    at += length;
    const bool is_prefixed = !is_first && !options_.continuing_prefix.empty();
    const bool is_suffixed = at == end && !options_.end_of_word_suffix.empty();
    if (is_prefixed || is_suffixed) {
      decorated = is_prefixed ? options_.continuing_prefix : "";
      decorated += symbol;
      if (is_suffixed) decorated += options_.end_of_word_suffix;
      budget.spend(decorated.size() / 8, "model");
      symbol = decorated;
    }
    if (const auto id = vocabulary_.find(symbol)) {
      add_unknown();
      symbols.push_back(*id);
      continue;
    }
    if (options_.byte_fallback && append_bytes(symbol, byte_tokens_, symbols)) continue;
    if (options_.unknown.empty()) continue;
    check(unknown_.has_value(), "the token of unknown text, \"{}\", is not in the vocabulary",
          options_.unknown);
    if (!options_.fuse_unknown) add_unknown();
    unknown = 1;
  }
  add_unknown();
}

char32_t byte_level_char(unsigned char byte) {
  const auto is_printable = [](int b) {
    return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
  };
  if (is_printable(byte)) return byte;
  char32_t c = 0x100;
  for (int b = 0; b < byte; ++b) c += !is_printable(b);
  return c;
}

std::optional<unsigned char> byte_level_byte(char32_t c) {
  static const auto bytes = [] {
    std::array<int, 0x180> table;
    table.fill(-1);
    for (int b = 0; b < 256; ++b) table[byte_level_char(static_cast<unsigned char>(b))] = b;
    return table;
  }();
  if (c >= bytes.size() || bytes[c] < 0) return std::nullopt;
  return static_cast<unsigned char>(bytes[c]);
}

std::string to_byte_level(std::string_view bytes) {
  static const auto characters = [] {
    std::array<std::string, 256> table;
    for (int b = 0; b < 256; ++b)
      append_utf8(byte_level_char(static_cast<unsigned char>(b)), table[b]);
    return table;
  }();
  std::string out;
  out.reserve(2 * bytes.size());
  for (const char byte : bytes) out += characters[static_cast<unsigned char>(byte)];
  return out;
}

}  // namespace meshloom::text
