// SPDX-License-Identifier: Apache-2.0
// "Did you mean": the valid name that is closest to a wrong one.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace meshloom::base {

/// Returns how many insertions, deletions, substitutions and swaps of neighbours turn a into b
/// (optimal string alignment).
int edit_distance(std::string_view a, std::string_view b);

/// Returns the candidate with the least edit distance; empty if more than a third of the name's
/// letters would have to change, and for names of one or two letters.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

/// Returns "; did you mean NAME?", or nothing where none of the candidates is near.
std::string nearest_hint(std::string_view name, const std::vector<std::string>& candidates);

/// Returns the hint for a path that is not there, by what lies beside it: the first thousand names
/// of its folder, or the folders of them alone. Nothing where that cannot be read.
enum class Beside { kAnything, kFolders };
std::string nearest_hint(const std::filesystem::path& missing, Beside beside);

}  // namespace meshloom::base
