// SPDX-License-Identifier: Apache-2.0
// How many random cases a test draws, from which seed on.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace meshloom::testing {

struct Draws {
  std::uint64_t first_seed = 1;
  std::uint64_t count = 0;
};

/// Seeds 1 to `count`, unless MESHLOOM_TEST_SEED (the first) and MESHLOOM_TEST_DRAWS (how many) say
/// otherwise: a failure names its seed, to be run alone.
inline Draws draws_from_environment(std::uint64_t count) {
  const auto number = [](const char* name, std::uint64_t otherwise) {
    const char* text = std::getenv(name);
    return text ? std::strtoull(text, nullptr, 10) : otherwise;
  };
  return {number("MESHLOOM_TEST_SEED", 1), number("MESHLOOM_TEST_DRAWS", count)};
}

}  // namespace meshloom::testing
