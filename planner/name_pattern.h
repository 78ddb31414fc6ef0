// SPDX-License-Identifier: Apache-2.0
// Patterns over dotted names of modules and parameters, matched component by component.
//
// In a component `*` stands for any characters, `?` for one, `[1-3]`, `[ab]` for one of a set and
// `[!ab]` or `[^ab]` for one that is not. A dot is never matched by any of them. "" is the root
// alone.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace meshloom::planner {

/// Tells whether a name matches: "transformer.h.*.ln_1.weight" matches every layer's. Throws
/// InvalidArgument naming the pattern if a set is not closed, empty or runs backwards.
bool matches_pattern(std::string_view pattern, std::string_view name);

/// Tells whether the pattern matches `name` or a name that it lies below: "transformer.h.*" covers
/// all parameters of the layers. Throws as matches_pattern.
bool covers_pattern(std::string_view pattern, std::string_view name);

/// Returns which of `patterns` applies to `name`: an exact name before a pattern, then the one with
/// more literal characters; nullopt if none matches. Throws InvalidArgument naming both if two that
/// are equally good match.
std::optional<std::size_t> best_pattern(std::span<const std::string> patterns,
                                        std::string_view name);

/// Returns up to `count` of `names` that are closest to a pattern that matches none of them, by
/// edit distance of their components, nearest first; names that have nothing in common with it are
/// left out.
std::vector<std::string> near_misses(std::string_view pattern, std::span<const std::string> names,
                                     std::size_t count = 3);
/// Returns "pattern "x" matches nothing; near misses: a, b".
std::string unmatched_text(std::string_view pattern, std::span<const std::string> names);

}  // namespace meshloom::planner
