// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/nearest_name.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace meshloom::base {
namespace {

/// The definition, by recursion.
int slow_distance(std::string_view a, std::string_view b) {
  if (a.empty() || b.empty()) return static_cast<int>(a.size() + b.size());
  const auto a1 = a.substr(1);
  const auto b1 = b.substr(1);
  int best = std::min({slow_distance(a1, b1) + (a[0] == b[0] ? 0 : 1), slow_distance(a1, b) + 1,
                       slow_distance(a, b1) + 1});
  if (a.size() > 1 && b.size() > 1 && a[0] == b[1] && a[1] == b[0])
    best = std::min(best, slow_distance(a.substr(2), b.substr(2)) + 1);
  return best;
}

TEST(NearestName, DistanceMatchesItsDefinition) {
  std::mt19937 random(7);
  const auto word = [&] {
    std::string text(random() % 7, 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 3);
    return text;
  };
  for (int i = 0; i < 300; ++i) {
    const auto a = word();
    const auto b = word();
    EXPECT_EQ(edit_distance(a, b), slow_distance(a, b)) << a << " " << b;
  }
}

TEST(NearestName, FarNamesAreNotOffered) {
  const std::vector<std::string> names{"steps", "seq_len", "seed"};
  EXPECT_EQ(nearest_name("step", names), "steps");
  EXPECT_EQ(nearest_name("seqlen", names), "seq_len");
  EXPECT_EQ(nearest_name("sede", names), "seed");
  EXPECT_EQ(nearest_name("zzzzzzzz", names), "");
  EXPECT_EQ(nearest_name("blah", {"plan", "bleh"}), "bleh");
  EXPECT_EQ(nearest_name("blah", {"plan"}), "") << "two of four letters";
}

}  // namespace
}  // namespace meshloom::base
