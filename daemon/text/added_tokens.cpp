// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/added_tokens.h"

#include <algorithm>
#include <map>

#include "daemon/text/unicode.h"
#include "daemon/text/utf8.h"
#include "kernels/base/error.h"

namespace meshloom::text {
namespace {

constexpr const char* kAddedTokens = "added_tokens";

/// Of the texts that are looked for, each byte of which takes 60 of memory. The most that are
/// published have half a million.
constexpr std::uint64_t kMostBytesOfAdded = std::uint64_t{8} << 20;

CharClass class_before(std::string_view text) {
  return text.empty() ? CharClass{0} : CharClasses::get()[pop_char(text)];
}

CharClass class_after(std::string_view text) {
  const char* at = text.data();
  return text.empty() ? CharClass{0} : CharClasses::get()[next_char(at)];
}

}  // namespace

std::vector<AddedToken> with_ids(const std::vector<AddedToken>& given, const Vocabulary& vocabulary,
                                 TokenId first_new) {
  std::vector<AddedToken> tokens;
  std::map<std::string, TokenId> ids;
  std::unordered_map<TokenId, std::size_t> places;
  for (AddedToken token : given) {
    if (token.content.empty()) continue;
    const auto [id, is_new] = ids.try_emplace(token.content, 0);
    if (is_new) {
      const auto known = vocabulary.find(token.content);
      id->second = known ? *known : first_new++;
    }
    token.id = id->second;
    const auto [place, is_first] = places.try_emplace(token.id, tokens.size());
    if (is_first) {
      tokens.push_back(std::move(token));
      continue;
    }
    AddedToken& before = tokens[place->second];
    token.special = token.special || (before.special && before.content == token.content);
    before = std::move(token);
  }
  return tokens;
}

TokenFinder::TokenFinder(const std::vector<const AddedToken*>& tokens,
                         const std::vector<std::string>& texts, Budget& budget)
    : tokens_(1) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    budget.spend(1 + 4 * texts[i].size(), kAddedTokens);
    std::uint32_t node = 0;
    for (const char c : texts[i]) {
      const auto byte = static_cast<unsigned char>(c);
      const auto [at, is_new] = children_.try_emplace(std::uint64_t{node} << 8 | byte,
                                                      static_cast<std::uint32_t>(tokens_.size()));
      if (is_new) tokens_.push_back(nullptr);
      node = at->second;
    }
    if (node == 0) continue;
    begins_[static_cast<unsigned char>(texts[i][0])] = true;
    if (tokens_[node] == nullptr) tokens_[node] = tokens[i];
  }
}

bool TokenFinder::find(std::string_view text, std::size_t from, Budget& budget,
                       Match& match) const {
  if (children_.empty()) return false;
  // Many places may begin a token that is as long as the text and not there.
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    if (!begins_[static_cast<unsigned char>(text[begin])]) continue;
    match.token = nullptr;
    std::uint32_t node = 0;
    for (std::size_t end = begin; end < text.size();) {
      const auto at =
          children_.find(std::uint64_t{node} << 8 | static_cast<unsigned char>(text[end++]));
      if (at == children_.end()) break;
      node = at->second;
      if (tokens_[node] != nullptr) match = {begin, end, tokens_[node]};
      budget.spend(1, kAddedTokens);
    }
    if (match.token != nullptr) return true;
  }
  return false;
}

void TokenFinder::split(std::string_view text, Budget& budget,
                        const std::function<void(const AddedToken&)>& token,
                        const std::function<void(std::string_view)>& rest) const {
  budget.spend(1 + text.size() / 4, kAddedTokens);
  std::size_t done = 0;
  // Where the white space behind the last token with rstrip ends: a token inside of it has the same
  // end, and to look for it again would take quadratic time.
  std::size_t white_end = 0;
  Match match{};
  for (std::size_t from = 0; find(text, from, budget, match); from = match.end) {
    std::size_t begin = match.begin, end = match.end;
    const AddedToken& found = *match.token;
    if (found.single_word &&
        ((class_before(text.substr(0, begin)) & kWord) || (class_after(text.substr(end)) & kWord)))
      continue;
    if (found.lstrip)
      while (begin > done && (class_before(text.substr(0, begin)) & kSpace)) {
        std::string_view before = text.substr(0, begin);
        pop_char(before);
        begin = before.size();
      }
    if (found.rstrip) {
      end = std::max(end, white_end);
      while (class_after(text.substr(end)) & kSpace) end += utf8_length(text[end]);
      white_end = end;
    }
    if (done < begin) rest(text.substr(done, begin - done));
    token(found);
    // A token of white space behind one with rstrip may begin before the end of that.
    done = end;
  }
  if (done < text.size()) rest(text.substr(done));
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const Normalizer& normalizer,
                         Budget& budget)
    : tokens_(std::move(tokens)),
      raw_(finder(false, normalizer, budget)),
      normalized_(finder(true, normalizer, budget)) {}

TokenFinder AddedTokens::finder(bool normalized, const Normalizer& normalizer,
                                Budget& budget) const {
  std::uint64_t bytes = 0;
  std::vector<const AddedToken*> found;
  std::vector<std::string> texts;
  // Of texts that become equal a special one counts before the others.
  for (const bool special : {true, false})
    for (const AddedToken& token : tokens_) {
      if (token.normalized != normalized || token.special != special) continue;
      found.push_back(&token);
      NormalText text{token.content};
      if (normalized && normalizer && !text.text.empty()) normalizer(text, budget);
      bytes += text.text.size();
      if (bytes > kMostBytesOfAdded)
        throw ResourceExhausted(
            fmt::format("added_tokens: have more than {} bytes", kMostBytesOfAdded),
            "TOKENIZER_LIMIT", {{"part", kAddedTokens}});
      texts.push_back(std::move(text.text));
    }
  return TokenFinder(found, texts, budget);
}

}  // namespace meshloom::text
