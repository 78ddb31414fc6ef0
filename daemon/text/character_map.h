// SPDX-License-Identifier: Apache-2.0
// CharacterMap: sentencepiece's compiled map of texts to their normal forms.
//
// The bytes are the size of a trie as uint32, the trie, and the normal forms, each with a zero
// behind it. The trie is a double array of uint32 units (little endian), as darts-clone builds it:
// bits 0 to 7 of a unit (and bit 31) are its label, bit 8 says that a value follows, bits 10 to 30
// are the offset of its children, shifted by 8 where bit 9 is set; a unit with a value holds it in
// bits 0 to 30. A value is the place of a normal form.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/text/budget.h"

namespace meshloom::text {

class CharacterMap {
 public:
  /// Empty bytes: every character stays as it is. Throws InvalidArgument for bytes that are no map.
  explicit CharacterMap(std::string_view bytes);

  struct Match {
    std::size_t length = 0;  ///< bytes of the text that are replaced; 0: none
    std::string_view normal;
  };
  /// Returns the longest text of the map that `text`, valid UTF-8, begins with: whole characters.
  /// The normal form is what the file says, UTF-8 or not. Throws InvalidArgument where the map
  /// breaks.
  Match longest(std::string_view text, Budget& budget) const;
  /// Returns the shortest one, which may be a part of a character.
  Match shortest(std::string_view text, Budget& budget) const;

 private:
  /// Calls found(match) for the texts of the map that `text` begins with, shortest first, until
  /// found(match) is false.
  template <typename Found>
  void for_each_match(std::string_view text, Budget& budget, Found&& found) const;

  std::vector<std::uint32_t> units_;
  std::string normals_;
};

}  // namespace meshloom::text
