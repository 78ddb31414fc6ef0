// SPDX-License-Identifier: Apache-2.0
// Piece: a part of a text between its splitting and the vocabulary.
#pragma once

#include <functional>
#include <string_view>

namespace meshloom::text {

struct Piece {
  std::string_view text;  ///< valid UTF-8; valid until the sink returns
  bool first = false;     ///< begins where the text that was to be encoded begins
};

using PieceSink = std::function<void(const Piece&)>;

}  // namespace meshloom::text
