// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/unigram.h"

#include <algorithm>
#include <limits>

#include "daemon/text/utf8.h"
#include "kernels/base/error.h"

namespace meshloom::text {
namespace {

/// How much less probable an unknown character is than the least probable token.
constexpr double kUnknownPenalty = 10;

}  // namespace

Unigram::Unigram(const std::vector<std::pair<std::string, double>>& tokens,
                 std::optional<TokenId> unknown, bool byte_fallback, Budget& budget,
                 const UnigramSearch& search)
    : unknown_(unknown), byte_fallback_(byte_fallback), search_(search) {
  const auto is_hidden = [&](std::size_t id) {
    return !search.hidden.empty() && search.hidden[id];
  };
  check(!unknown || static_cast<std::size_t>(*unknown) < tokens.size(),
        "the unknown token is {}: expected less than the {} tokens", unknown.value_or(0),
        tokens.size());
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [token, score] : tokens) {
    vocabulary_.add(token, static_cast<TokenId>(scores_.size()));
    if (!is_hidden(scores_.size())) least = std::min(least, score);
    scores_.push_back(score);
  }
  unknown_score_ = least - kUnknownPenalty;
  byte_tokens_ = vocabulary_.byte_tokens();

  std::vector<std::pair<std::string_view, TokenId>> found;
  vocabulary_.for_each([&](std::string_view token, TokenId id) {
    if (!is_hidden(static_cast<std::size_t>(id))) found.emplace_back(token, id);
  });
  tokens_.emplace(std::move(found), budget);
}

std::vector<Unigram::Step> Unigram::best_steps(std::string_view text, Budget& budget) const {
  std::vector<Step> best(text.size() + 1);
  for (std::size_t begin = 0; begin < text.size();) {
    // Never beyond the end, whatever the text: positions are written to.
    const std::size_t length = std::min(utf8_length(text[begin]), text.size() - begin);
    const double here = best[begin].score;
    const auto offer = [&](std::size_t end, double score, TokenId token) {
      Step& step = best[end];
      const double sum = search_.single_precision ? static_cast<float>(here + score) : here + score;
      if (step.token == kNoToken || sum > step.score)
        step = {sum, static_cast<std::uint32_t>(begin), token};
    };
    bool is_known = false;
    tokens_->for_each_beginning(text.substr(begin), budget, [&](std::size_t bytes, TokenId token) {
      offer(begin + bytes, scores_[static_cast<std::size_t>(token)], token);
      is_known |= bytes == length;
    });
    if (!is_known) {
      check(unknown_.has_value(), "the text has \"{}\", and the tokenizer no unknown token",
            text.substr(begin, length));
      offer(begin + length, unknown_score_, kUnknown);
    }
    begin += length;
  }
  return best;
}

void Unigram::encode(std::string_view text, Budget& budget, std::vector<TokenId>& out) const {
  check(text.size() < std::numeric_limits<std::uint32_t>::max(),
        "a piece of text has {} bytes: expected less than 4 GiB", text.size());
  const std::vector<Step> best = best_steps(text, budget);
  std::vector<std::pair<std::size_t, std::size_t>> cuts;  // Tokens from the last to the first.
  const auto is_unknown = [&](const Step& step) {
    return step.token == kUnknown || step.token == unknown_;
  };
  for (std::size_t end = text.size(); end > 0; end = best[end].begin) {
    const bool joins =
        !cuts.empty() && is_unknown(best[end]) && is_unknown(best[cuts.back().second]);
    if (joins && cuts.back().first == end)
      cuts.back().first = best[end].begin;
    else
      cuts.emplace_back(best[end].begin, end);
  }
  for (auto cut = cuts.rbegin(); cut != cuts.rend(); ++cut) {
    const Step& last = best[cut->second];
    const std::string_view part = text.substr(cut->first, cut->second - cut->first);
    if (!is_unknown(last))
      out.push_back(last.token);
    else if (const auto id = vocabulary_.find(part); id && search_.hidden.empty())
      out.push_back(*id);
    else if (!byte_fallback_ || !append_bytes(part, byte_tokens_, out))
      out.push_back(*unknown_);
  }
}

}  // namespace meshloom::text
