// SPDX-License-Identifier: Apache-2.0
// Splits a text at the matches of a pattern, in the five ways that tokenizer.json has.
#pragma once

#include <functional>

#include "daemon/text/budget.h"
#include "daemon/text/piece.h"

namespace meshloom::text {

/// Each behavior is shown by what it makes of "the-final--countdown" at "-".
enum class SplitBehavior {
  kRemoved,             ///< the, final, countdown
  kIsolated,            ///< the, -, final, -, -, countdown
  kMergedWithPrevious,  ///< the-, final-, -, countdown
  kMergedWithNext,      ///< the, -final, -, -countdown
  kContiguous,          ///< the, -, final, --, countdown
};

/// Calls its argument with the begin and end of every match, from left to right.
using MatchFinder =
    std::function<void(std::string_view text, Budget& budget,
                       const std::function<void(std::size_t begin, std::size_t end)>& found)>;

/// `invert`: what lies between matches counts as matches. Empty pieces may come.
void split_at_matches(const Piece& piece, const MatchFinder& find, SplitBehavior behavior,
                      bool invert, Budget& budget, const PieceSink& sink);

/// Makes a finder of a text that is not empty.
MatchFinder occurrences_of(std::string text);

}  // namespace meshloom::text
