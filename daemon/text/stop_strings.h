// SPDX-License-Identifier: Apache-2.0
// StopStrings: text that comes piece by piece, up to the first of some strings in it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace meshloom::text {

/// The text ends before the string that is complete first; of several that are complete at the same
/// place the longest counts. What comes out is the same however the text is divided into pieces.
/// Compares bytes: whole characters go in and come out if the strings are UTF-8.
class StopStrings {
 public:
  /// None of `strings` is empty. Without any of them every piece comes out as it goes in.
  explicit StopStrings(std::vector<std::string> strings = {});

  /// Returns what is known to be before any of the strings now. The end of the text stays here as
  /// long as one of them may begin with it. Empty once the text has ended.
  std::string add(std::string_view piece);
  /// Returns the rest, where nothing follows.
  std::string finish();
  /// Tells whether one of the strings has ended the text.
  bool stopped() const { return stopped_; }

 private:
  /// Returns the length of the longest of the strings that the first `end` bytes of what is held
  /// end with; 0 if they end with none.
  std::size_t length_before(std::size_t end) const;
  /// Returns the longest end of what is held that one of the strings begins with.
  std::size_t possible_beginning() const;

  std::vector<std::string> strings_;
  std::string held_;  ///< not told yet
  bool stopped_ = false;
};

}  // namespace meshloom::text
