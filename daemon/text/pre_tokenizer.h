// SPDX-License-Identifier: Apache-2.0
// Pre-tokenizers: what splits a normalised text into the pieces that the model sees.
#pragma once

#include <functional>
#include <vector>

#include "daemon/text/json_part.h"
#include "daemon/text/piece.h"

namespace meshloom::text {

/// Splits a piece that is not empty. May be used by several threads at once.
using PreTokenizer = std::function<void(const Piece& piece, const PieceSink& sink)>;

struct PreTokenizers {
  std::vector<PreTokenizer> steps = {};  ///< each splits what the one before it made
  bool byte_level = false;  ///< the model sees bytes in GPT-2's alphabet; the steps leave that out

  /// Calls `sink` with the pieces of `text`, in order; empty ones are left out.
  void split(const Piece& text, const PieceSink& sink) const;
};

/// The "pre_tokenizer" of a tokenizer.json. Throws Unimplemented naming a kind that is not known.
PreTokenizers read_pre_tokenizers(const JsonPart& part);

}  // namespace meshloom::text
