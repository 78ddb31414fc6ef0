// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/split.h"

#include <string>
#include <utility>

namespace meshloom::text {
namespace {

struct Segment {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool is_match = false;
};

/// Gives out segments one behind the next, joined as the behaviour says, with no list of them.
class Joiner {
 public:
  Joiner(const Piece& piece, SplitBehavior behavior, const PieceSink& sink)
      : piece_(piece), behavior_(behavior), sink_(sink) {}

  void add(const Segment& segment) {
    const bool joins = joins_held(segment);
    if (!joins) flush();
    held_ = {joins ? held_.begin : segment.begin, segment.end, segment.is_match};
    has_held_ = true;
  }

  void flush() {
    const bool is_removed = behavior_ == SplitBehavior::kRemoved && held_.is_match;
    if (has_held_ && !is_removed && held_.end > held_.begin)
      sink_({piece_.text.substr(held_.begin, held_.end - held_.begin),
             piece_.first && held_.begin == 0});
    has_held_ = false;
  }

 private:
  bool joins_held(const Segment& segment) const {
    if (!has_held_) return false;
    switch (behavior_) {
      case SplitBehavior::kMergedWithPrevious: return segment.is_match && !held_.is_match;
      case SplitBehavior::kMergedWithNext: return !segment.is_match && held_.is_match;
      case SplitBehavior::kContiguous: return segment.is_match == held_.is_match;
      default: return false;
    }
  }

  const Piece& piece_;
  SplitBehavior behavior_;
  const PieceSink& sink_;
  Segment held_;
  bool has_held_ = false;
};

}  // namespace

void split_at_matches(const Piece& piece, const MatchFinder& find, SplitBehavior behavior,
                      bool invert, Budget& budget, const PieceSink& sink) {
  Joiner joiner(piece, behavior, sink);
  std::size_t end_of_last = 0;
  find(piece.text, budget, [&](std::size_t begin, std::size_t end) {
    if (end_of_last != begin) joiner.add({end_of_last, begin, invert});
    joiner.add({begin, end, !invert});
    end_of_last = end;
  });
  if (end_of_last != piece.text.size()) joiner.add({end_of_last, piece.text.size(), invert});
  joiner.flush();
}

MatchFinder occurrences_of(std::string what) {
  return [what = std::move(what)](std::string_view text, Budget& budget, const auto& found) {
    // The search looks at up to all of `what` at every place.
    budget.spend(text.size() * (1 + what.size() / 32), "pre_tokenizer");
    for (std::size_t at = 0; (at = text.find(what, at)) != std::string_view::npos;
         at += what.size())
      found(at, at + what.size());
  };
}

}  // namespace meshloom::text
