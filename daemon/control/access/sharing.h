// SPDX-License-Identifier: Apache-2.0
// With whom an object is shared, as it is kept: a list of names that is bounded.
#pragma once

#include <algorithm>
#include <string>

#include "kernels/base/error.h"

namespace meshloom::control {

inline constexpr int kMostShares = 100;            ///< of an object
inline constexpr std::size_t kLongestOwner = 128;  ///< bytes of the name of an identity

/// `names`: a repeated field. Throws ResourceExhausted (TOO_MANY_SHARES).
template <typename Names>
void share_with(const std::string& with, bool take_back, Names* names) {
  const auto found = std::find(names->begin(), names->end(), with);
  if (take_back) {
    if (found != names->end()) names->erase(found);
    return;
  }
  if (found != names->end()) return;
  if (names->size() >= kMostShares)
    throw ResourceExhausted(
        fmt::format("it is shared with {} others, with no more can it be", names->size()),
        "TOO_MANY_SHARES", {{"limit", std::to_string(kMostShares)}});
  *names->Add() = with;
}

}  // namespace meshloom::control
