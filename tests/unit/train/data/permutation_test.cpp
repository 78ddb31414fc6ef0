// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/data/permutation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

std::vector<std::int64_t> order_of(std::int64_t n, std::uint64_t seed, std::uint64_t epoch) {
  const Permutation permutation(n, seed, epoch);
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) order[static_cast<std::size_t>(i)] = permutation(i);
  return order;
}

TEST(Permutation, HitsEveryElementOnce) {
  for (const std::int64_t n : {1, 2, 3, 4, 5, 7, 8, 9, 63, 64, 65, 1000, 4097}) {
    std::vector<int> seen(static_cast<std::size_t>(n), 0);
    for (const std::int64_t element : order_of(n, 42, 3)) {
      ASSERT_GE(element, 0);
      ASSERT_LT(element, n);
      ++seen[static_cast<std::size_t>(element)];
    }
    for (const int count : seen) ASSERT_EQ(count, 1) << "n = " << n;
  }
}

TEST(Permutation, DependsOnSeedAndEpoch) {
  EXPECT_EQ(order_of(1000, 1, 0), order_of(1000, 1, 0));
  EXPECT_NE(order_of(1000, 1, 0), order_of(1000, 2, 0));
  EXPECT_NE(order_of(1000, 1, 0), order_of(1000, 1, 1));
  EXPECT_NE(order_of(1000, 1, 0), order_of(1000, 1ull << 40, 0));
}

// The order of a shuffled deck is not correlated with the places: the correlation of n places has
// standard deviation 1 / sqrt(n - 1); 5 of them are never seen by chance.
TEST(Permutation, LooksShuffled) {
  const std::int64_t n = 5000;
  const auto order = order_of(n, 7, 0);
  const double mean = static_cast<double>(n - 1) / 2;
  double product = 0, square = 0, neighbours = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double a = static_cast<double>(i) - mean;
    const double b = static_cast<double>(order[static_cast<std::size_t>(i)]) - mean;
    const double next = static_cast<double>(order[static_cast<std::size_t>((i + 1) % n)]) - mean;
    product += a * b;
    neighbours += b * next;
    square += a * a;
  }
  const double limit = 5.0 / std::sqrt(static_cast<double>(n - 1));
  EXPECT_LT(std::abs(product / square), limit);
  EXPECT_LT(std::abs(neighbours / square), limit);
}

TEST(Permutation, RefusesWhatIsOutside) {
  EXPECT_THROW(Permutation(0, 1, 0), InvalidArgument);
  const Permutation permutation(10, 1, 0);
  EXPECT_THROW(permutation(10), InvalidArgument);
  EXPECT_THROW(permutation(-1), InvalidArgument);
}

TEST(Permutation, WorksForHugeSizes) {
  const Permutation permutation((std::int64_t{1} << 45) + 12345, 9, 2);
  for (std::int64_t i = 0; i < 100; ++i) {
    const std::int64_t element = permutation(i * 1'000'000'007);
    EXPECT_GE(element, 0);
    EXPECT_LT(element, permutation.size());
  }
}

}  // namespace
}  // namespace meshloom::train
