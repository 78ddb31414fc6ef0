// SPDX-License-Identifier: Apache-2.0
// TextCuts: where a text may be divided so that its parts have the tokens of the whole.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace meshloom::text {

class JsonPart;

/// TextCuts names places where a tokenizer reads what stands before them and what stands behind
/// them independently of each other, without its template. None: the text is to be encoded as one.
struct TextCuts {
  bool anywhere = false;      ///< between any two bytes
  bool before_blank = false;  ///< between a letter of ASCII and a blank
  /// Behind a newline that stands between a letter, a mark of punctuation or a symbol of ASCII and
  /// a letter.
  bool after_newline = false;

  bool any() const { return anywhere || before_blank || after_newline; }
};

/// Returns the cuts of a tokenizer.json, by its parts that are known to allow them. Every part has
/// to:
/// - What normalises a text changes no letter of ASCII into anything but one, no blank at all, and
///   looks from neither to the other; behind a newline canonical forms alone are taken.
/// - A pre-tokenizer splits there, and those before it judge single characters. The patterns of
///   GPT-2, Llama 3 and Qwen 2 never match letters together with a blank that follows them, nor a
///   single newline together with a letter that follows it, and look no further ahead than the
///   next character.
/// - No added token lies across such a place or looks beyond it.
TextCuts text_cuts(const JsonPart& tokenizer);

/// Returns the last such place of `text` behind `from`; bytes that are no UTF-8 may be anywhere in
/// it.
std::optional<std::size_t> last_cut(std::string_view text, std::size_t from, const TextCuts& cuts);

}  // namespace meshloom::text
