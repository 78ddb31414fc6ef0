// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/token_ranges.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "daemon/text/common_beginning.h"
#include "kernels/base/error.h"

namespace meshloom::text {
namespace {

/// So many bytes are encoded at most where the text before every end of a range is looked at.
constexpr std::size_t kMostBytes = std::size_t{128} << 20;

/// Where a place of the text lies between tokens, or inside of one: so many tokens end before it,
/// and so many begin before it.
struct Border {
  std::size_t end_before = 0, begin_before = 0;
};

/// The ends of the ranges, in order, each once, and that of the text.
std::vector<std::size_t> ends_of(std::span<const ByteRange> ranges, std::size_t size) {
  std::vector<std::size_t> ends;
  for (const auto& [begin, end] : ranges) {
    ends.push_back(begin);
    ends.push_back(end);
  }
  ends.push_back(size);
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return ends;
}

/// By the tokens that the parts of the text have alone; nothing if those are others.
std::optional<std::vector<Border>> borders_by_parts(const Tokenizer& tokenizer,
                                                    std::string_view text,
                                                    std::span<const TokenId> tokens,
                                                    const std::vector<std::size_t>& ends,
                                                    WordCache& cache, const StopCheck& stop) {
  std::vector<Border> borders;
  std::vector<TokenId> alone;
  std::size_t begin = 0, known = 0;
  for (const std::size_t end : ends) {
    const std::string_view part = text.substr(begin, end - begin);
    if (stop) stop();  // The budget of a short part never asks.
    Budget budget = Budget::of_text(part.size(), stop);
    alone.clear();
    if (!part.empty()) tokenizer.encode(part, false, cache, budget, alone);
    const auto rest = tokens.subspan(known);
    const bool is_same =
        alone.size() <= rest.size() && std::equal(alone.begin(), alone.end(), rest.begin());
    if (!is_same) return std::nullopt;
    known += alone.size();
    borders.push_back({known, known});
    begin = end;
  }
  return known == tokens.size() ? std::optional(borders) : std::nullopt;
}

std::string decoded(const Tokenizer& tokenizer, std::span<const TokenId> tokens,
                    const StopCheck& stop) {
  if (stop) stop();
  Budget budget(stop);
  return tokenizer.decode(tokens, false, budget);
}

/// By texts of tokens: the first ones whose text has all that the text before the place has.
Border border_by_text(const Tokenizer& tokenizer, std::string_view before,
                      std::span<const TokenId> tokens, const std::string& whole, WordCache& cache,
                      const StopCheck& stop) {
  std::vector<TokenId> prefix;
  Budget budget = Budget::of_text(before.size(), stop);
  tokenizer.encode(before, false, cache, budget, prefix);
  const std::string wanted = decoded(tokenizer, prefix, stop);
  if (!whole.starts_with(wanted))
    throw Unimplemented(
        "the tokenizer changes the text so that it cannot be told which tokens are the assistant's",
        "NOT_OFFERED");
  const auto text_of_first = [&](std::size_t count) {
    return common_beginning(decoded(tokenizer, tokens.first(count), stop), whole);
  };
  std::size_t low = 0, high = tokens.size();
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (text_of_first(middle) < wanted.size())
      low = middle + 1;
    else
      high = middle;
  }
  const bool is_between = low == 0 || text_of_first(low) == wanted.size();
  return {is_between ? low : low - 1, low};
}

}  // namespace

std::vector<TokenRange> tokens_in_ranges(const Tokenizer& tokenizer, std::string_view text,
                                         std::span<const TokenId> tokens,
                                         std::span<const ByteRange> ranges, WordCache& cache,
                                         const StopCheck& stop) {
  if (ranges.empty()) return {};
  const std::vector<std::size_t> ends = ends_of(ranges, text.size());
  auto borders = borders_by_parts(tokenizer, text, tokens, ends, cache, stop);
  if (!borders) {
    if (ends.size() * text.size() > kMostBytes)
      throw ResourceExhausted(
          fmt::format("a conversation of {} bytes has too many answers, {}, to be told from the "
                      "tokens around them",
                      text.size(), ranges.size()),
          "CONVERSATION_TOO_LONG");
    borders.emplace();
    const std::string whole = decoded(tokenizer, tokens, stop);
    for (const std::size_t end : ends)
      borders->push_back(
          border_by_text(tokenizer, text.substr(0, end), tokens, whole, cache, stop));
  }
  const auto border_at = [&](std::size_t place) {
    const auto at = std::lower_bound(ends.begin(), ends.end(), place) - ends.begin();
    return (*borders)[static_cast<std::size_t>(at)];
  };
  std::vector<TokenRange> inside;
  for (const auto& [begin, end] : ranges)
    if (begin < end) inside.emplace_back(border_at(begin).end_before, border_at(end).begin_before);
  return inside;
}

}  // namespace meshloom::text
