// SPDX-License-Identifier: Apache-2.0
// The generated tables that unicode.h, normal_form.h and grapheme.h give access to: what the
// `tokenizers` package takes every character for. Written by scripts/text/make_unicode_data.py.
#pragma once

#include <cstddef>
#include <cstdint>

namespace meshloom::text::unicode_data {

/// "tokenizers-" and the version of the package that was asked.
extern const char* const kVersion;

/// The classes that there are: bits 0 to 4 are the general category, then the flags of unicode.h.
extern const std::uint16_t kKinds[];
extern const std::size_t kKinds_size;
/// A run of characters of one class begins at each entry: first << 8 | index into kKinds.
extern const std::uint32_t kRuns[];
extern const std::size_t kRuns_size;

/// Ranges (first, last, step) of characters and how far their lower-case ones are from them.
extern const std::int32_t kLowercase[];
extern const std::size_t kLowercase_size;

/// Canonical decompositions by one step (character, first, second), second 0 where there is none.
extern const std::uint32_t kDecompositions[];
extern const std::size_t kDecompositions_size;
/// Characters of those with two parts that do not compose again.
extern const std::uint32_t kOnlyApart[];
extern const std::size_t kOnlyApart_size;
/// Runs (character << 8 | canonical combining class, count) of characters of one class that is not
/// 0.
extern const std::uint32_t kCombining[];
extern const std::size_t kCombining_size;

/// Whole decompositions of NFKD where they are not those of NFD: character << 8 | count, then so
/// many characters.
extern const std::uint32_t kCompatible[];
extern const std::size_t kCompatible_size;

/// A run of characters that are the same in grapheme clusters begins at each entry:
/// first << 8 | kind, in the order of grapheme.cpp.
extern const std::uint32_t kGraphemes[];
extern const std::size_t kGraphemes_size;

/// A run of characters that pre-tokenizing by scripts keeps together begins at each entry:
/// first << 8 | number of the script, 0 for those that belong to any.
extern const std::uint32_t kScripts[];
extern const std::size_t kScripts_size;

}  // namespace meshloom::text::unicode_data
