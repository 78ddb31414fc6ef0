// SPDX-License-Identifier: Apache-2.0
// Regex: a regular expression as tokenizer.json has them (Oniguruma's syntax), matched by PCRE2.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "daemon/text/budget.h"

namespace meshloom::text {

/// Returns the expression for PCRE2: classes of characters (\p{..}, \s, \d, \w) are written out
/// from our own tables, so that the library's version of Unicode plays no part. Throws
/// Unimplemented naming what the two syntaxes do not share or what this program does not know,
/// ResourceExhausted where that is more than 1 MiB.
std::string to_pcre2(std::string_view expression);

/// PCRE2 makes this of an expression.
struct CompiledPattern;

/// It may be used by several threads at once, each with a budget.
///
/// There are limits on what a match may take in PCRE2, none on what a text may: an expression that
/// takes a million steps at every place takes hours. PCRE2 counts as steps what it goes back alone,
/// and does not say how many there were. So a match is looked for at a few places at once with few
/// steps, in code without any counting. Where those are not enough, it is looked for at one place
/// in code that calls back between any two parts of the expression, where the characters since the
/// last call are paid for. What the first code does without counting it (a class that repeats) is
/// paid for by the time of the thread.
class Regex {
 public:
  /// Throws as to_pcre2, InvalidArgument for what is no regular expression, and ResourceExhausted
  /// for one that is too large.
  explicit Regex(std::string_view expression);

  /// Calls body(begin, end) for the matches in `text`, valid UTF-8, from left to right. After an
  /// empty match the search goes on one character later. Throws ResourceExhausted if PCRE2 gives up
  /// on the text, which is never taken for its end, and as Budget::spend; `part` is for that.
  void for_each_match(std::string_view text,
                      const std::function<void(std::size_t begin, std::size_t end)>& body,
                      Budget& budget, const char* part) const;
  /// Finds the matches with a budget for the text.
  void for_each_match(std::string_view text,
                      const std::function<void(std::size_t begin, std::size_t end)>& body) const {
    Budget budget = Budget::of_text(text.size());
    for_each_match(text, body, budget, "pre_tokenizer");
  }

 private:
  std::string expression_;
  std::shared_ptr<const CompiledPattern> quick_, counting_;  ///< shared by copies
};

}  // namespace meshloom::text
