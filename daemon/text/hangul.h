// SPDX-License-Identifier: Apache-2.0
// How Hangul syllables follow from their letters (The Unicode Standard, section 3.12).
#pragma once

namespace meshloom::text {

inline constexpr char32_t kHangulBase = 0xAC00;  ///< the first syllable
inline constexpr char32_t kLeadBase = 0x1100, kVowelBase = 0x1161;
inline constexpr char32_t kTailBase = 0x11A7;  ///< one before the first tail
/// Counts; of tails, none is one.
inline constexpr char32_t kLeads = 19, kVowels = 21, kTails = 28;
inline constexpr char32_t kSyllables = kLeads * kVowels * kTails;

}  // namespace meshloom::text
