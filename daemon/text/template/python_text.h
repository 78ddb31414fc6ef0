// SPDX-License-Identifier: Apache-2.0
// What Python's str does with texts: searching, stripping, splitting, replacing, cases. Texts are
// valid UTF-8, and positions are bytes unless a name says otherwise.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace meshloom::text::chat {

class Work;

/// The place of what is not there.
inline constexpr std::size_t kNowhere = std::string_view::npos;

/// Appends and pays for it.
void append(Work& work, std::string& out, std::string_view more);

/// Returns the first place of `part` from `from` on; kNowhere where there is none.
std::size_t find_text(Work& work, std::string_view text, std::string_view part, std::size_t from);
/// Returns the last place of `part`; kNowhere where there is none.
std::size_t find_last(Work& work, std::string_view text, std::string_view part);
/// Returns how often `part`, which is not empty, is there side by side.
std::int64_t count_text(Work& work, std::string_view text, std::string_view part);

/// Returns the text without white space at the ends, or without characters of `characters`.
std::string_view strip(Work& work, std::string_view text,
                       const std::optional<std::string_view>& characters, bool left, bool right);

/// Splits at white space, or at a separator; at most `most` times from the left or the right
/// (negative: always).
std::vector<std::string_view> split(Work& work, std::string_view text,
                                    const std::optional<std::string_view>& separator,
                                    std::int64_t most, bool from_right);
std::vector<std::string_view> split_lines(Work& work, std::string_view text, bool keep_ends);

/// Replaces a text. `most`: so many places at most; negative: all.
std::string replace(Work& work, std::string_view text, std::string_view what, std::string_view with,
                    std::int64_t most);

/// Makes each word begin with an upper-case letter, as str.title() and the filter title have it.
std::string title_case(Work& work, std::string_view text);
std::string title_filter(Work& work, std::string_view text);
std::string capitalized(Work& work, std::string_view text);
std::string swapped_case(Work& work, std::string_view text);

/// Returns characters [start, stop) in steps, as a slice with bounds that fit the length.
std::string slice_text(Work& work, std::string_view text, std::size_t length, std::int64_t start,
                       std::int64_t stop, std::int64_t step);

/// Returns the text with &, <, >, ' and " as HTML has them.
std::string escaped_html(Work& work, std::string_view text);

}  // namespace meshloom::text::chat
