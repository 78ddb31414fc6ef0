// SPDX-License-Identifier: Apache-2.0
#include "planner/name_pattern.h"

#include <algorithm>
#include <numeric>

#include "kernels/base/error.h"

namespace meshloom::planner {
namespace {

std::vector<std::string_view> components_of(std::string_view name) {
  std::vector<std::string_view> parts;
  if (name.empty()) return parts;
  while (true) {
    const auto dot = name.find('.');
    parts.push_back(name.substr(0, dot));
    if (dot == std::string_view::npos) return parts;
    name.remove_prefix(dot + 1);
  }
}

/// One element of a component: a literal, any character, any characters, or a set.
struct Token {
  enum class Kind { kLiteral, kAnyOne, kAnyMany, kSet } kind = Kind::kLiteral;
  char literal = 0;
  bool negated = false;
  std::vector<std::pair<unsigned char, unsigned char>> ranges = {};

  bool takes(char c) const {
    if (kind == Kind::kLiteral) return c == literal;
    if (kind != Kind::kSet) return true;
    const auto u = static_cast<unsigned char>(c);
    const bool inside = std::any_of(ranges.begin(), ranges.end(), [u](auto range) {
      return range.first <= u && u <= range.second;
    });
    return inside != negated;
  }
};

/// Reads the set that begins at text[at] == '['; `at` is left on its ']'.
Token read_set(std::string_view text, std::size_t& at, std::string_view pattern) {
  Token token{.kind = Token::Kind::kSet};
  std::size_t i = at + 1;
  if (i < text.size() && (text[i] == '!' || text[i] == '^')) {
    token.negated = true;
    ++i;
  }
  for (; i < text.size() && text[i] != ']'; ++i) {
    const auto first = static_cast<unsigned char>(text[i]);
    auto last = first;
    if (i + 2 < text.size() && text[i + 1] == '-' && text[i + 2] != ']') {
      last = static_cast<unsigned char>(text[i + 2]);
      i += 2;
    }
    check(first <= last, "pattern \"{}\": the set {} runs backwards", pattern, text.substr(at));
    token.ranges.emplace_back(first, last);
  }
  check(i < text.size(), "pattern \"{}\": the set {} is not closed by ]", pattern, text.substr(at));
  check(!token.ranges.empty(), "pattern \"{}\": an empty set [] matches nothing", pattern);
  at = i;
  return token;
}

std::vector<Token> tokens_of(std::string_view component, std::string_view pattern) {
  std::vector<Token> tokens;
  for (std::size_t i = 0; i < component.size(); ++i) {
    switch (component[i]) {
      case '*': tokens.push_back({.kind = Token::Kind::kAnyMany}); break;
      case '?': tokens.push_back({.kind = Token::Kind::kAnyOne}); break;
      case '[': tokens.push_back(read_set(component, i, pattern)); break;
      default: tokens.push_back({.literal = component[i]});
    }
  }
  return tokens;
}

/// Greedy matching that returns to the last `*` if it fails.
bool matches_component(const std::vector<Token>& tokens, std::string_view text) {
  std::size_t t = 0, i = 0;
  std::size_t star = tokens.size(), star_text = 0;
  while (i < text.size()) {
    if (t < tokens.size() && tokens[t].kind == Token::Kind::kAnyMany) {
      star = t++;
      star_text = i;
    } else if (t < tokens.size() && tokens[t].takes(text[i])) {
      ++t;
      ++i;
    } else if (star < tokens.size()) {
      t = star + 1;
      i = ++star_text;
    } else {
      return false;
    }
  }
  while (t < tokens.size() && tokens[t].kind == Token::Kind::kAnyMany) ++t;
  return t == tokens.size();
}

std::size_t literal_characters(std::string_view pattern) {
  std::size_t count = 0;
  for (const std::string_view component : components_of(pattern))
    for (const Token& token : tokens_of(component, pattern))
      count += token.kind == Token::Kind::kLiteral ? 1 : 0;
  return count;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0U : 1U)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

/// How far a name is from a pattern: component by component from the end, where names tell most;
/// a component that matches costs nothing, one too many or too few all its characters.
std::size_t distance(std::string_view pattern, std::string_view name) {
  const auto wanted = components_of(pattern), given = components_of(name);
  std::size_t total = 0;
  for (std::size_t i = 0; i < std::max(wanted.size(), given.size()); ++i) {
    const std::string_view w = i < wanted.size() ? wanted[wanted.size() - 1 - i] : "";
    const std::string_view g = i < given.size() ? given[given.size() - 1 - i] : "";
    if (i < wanted.size() && i < given.size() && matches_component(tokens_of(w, pattern), g))
      continue;
    total += edit_distance(w, g);
  }
  return total;
}

}  // namespace

bool matches_pattern(std::string_view pattern, std::string_view name) {
  // Most names differ from a pattern before its first wildcard. Only a set can be malformed.
  if (pattern.find('[') == std::string_view::npos &&
      !name.starts_with(pattern.substr(0, pattern.find_first_of("*?"))))
    return false;
  const auto wanted = components_of(pattern), given = components_of(name);
  bool all = wanted.size() == given.size();
  // Every component is read, so that a malformed pattern is refused whatever the name.
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const std::vector<Token> tokens = tokens_of(wanted[i], pattern);
    all = all && matches_component(tokens, given[i]);
  }
  return all;
}

bool covers_pattern(std::string_view pattern, std::string_view name) {
  const std::size_t wanted = components_of(pattern).size();
  std::size_t end = 0;
  for (std::size_t i = 0; i < wanted && end != std::string_view::npos; ++i)
    end = name.find('.', i == 0 ? 0 : end + 1);
  return matches_pattern(pattern, name.substr(0, end));
}

std::optional<std::size_t> best_pattern(std::span<const std::string> patterns,
                                        std::string_view name) {
  std::optional<std::size_t> best;
  std::size_t best_literals = 0;
  std::size_t rival = 0;  // matches as well as the best if `tie`
  bool tie = false;
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    if (!matches_pattern(patterns[i], name)) continue;
    if (patterns[i] == name) return i;
    const std::size_t literals = literal_characters(patterns[i]);
    if (!best || literals > best_literals) {
      best = i;
      best_literals = literals;
      tie = false;
    } else if (literals == best_literals) {
      rival = i;
      tie = true;
    }
  }
  if (tie)
    throw InvalidArgument(fmt::format(
        "patterns \"{}\" and \"{}\" both match \"{}\" equally well; make one more specific",
        patterns[*best], patterns[rival], name));
  return best;
}

std::vector<std::string> near_misses(std::string_view pattern, std::span<const std::string> names,
                                     std::size_t count) {
  std::vector<std::pair<std::size_t, std::string>> found;
  for (const std::string& name : names) {
    const std::size_t d = distance(pattern, name);
    if (d < std::max(pattern.size(), name.size())) found.emplace_back(d, name);
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> out;
  for (std::size_t i = 0; i < std::min(count, found.size()); ++i) out.push_back(found[i].second);
  return out;
}

std::string unmatched_text(std::string_view pattern, std::span<const std::string> names) {
  const std::vector<std::string> near = near_misses(pattern, names);
  if (near.empty()) return fmt::format("pattern \"{}\" matches nothing", pattern);
  return fmt::format("pattern \"{}\" matches nothing; near misses: {}", pattern,
                     fmt::join(near, ", "));
}

}  // namespace meshloom::planner
