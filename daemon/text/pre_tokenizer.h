// SPDX-License-Identifier: Apache-2.0
// Pre-tokenizers: what splits a normalised text into the pieces that the model sees.
#pragma once

#include <functional>
#include <vector>

#include "daemon/text/json_part.h"
#include "daemon/text/piece.h"

namespace meshloom::text {

/// Splits a piece that is not empty. May be used by several threads at once, each with a budget.
using PreTokenizer = std::function<void(const Piece& piece, Budget& budget, const PieceSink& sink)>;

struct PreTokenizers {
  /// Each splits what the one before it made, and calls the next one: at most kMostSteps.
  std::vector<PreTokenizer> steps = {};
  bool byte_level = false;  ///< the model sees bytes in GPT-2's alphabet; the steps leave that out

  /// Calls `sink` with the pieces of `text`, in order; empty ones are left out.
  void split(const Piece& text, Budget& budget, const PieceSink& sink) const;
};

/// Reads the "pre_tokenizer" of a tokenizer.json. Throws Unimplemented naming a kind that is not
/// known, ResourceExhausted for more than kMostSteps of them.
PreTokenizers read_pre_tokenizers(const JsonPart& part);

}  // namespace meshloom::text
