// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/plan_cache.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace meshloom::kernels::cuda {
namespace {

TEST(PlanCache, MakesAPlanOncePerKey) {
  PlanCache<int, int> cache;
  int made = 0;
  const auto create = [&] { return std::make_unique<int>(++made); };
  const std::shared_ptr<int> first = cache.find_or_create(5, create);
  EXPECT_EQ(*first, 1);
  EXPECT_EQ(cache.find_or_create(5, create), first);
  EXPECT_EQ(*cache.find_or_create(6, create), 2);
  EXPECT_EQ(cache.find_or_create(5, create), first);
}

TEST(PlanCache, RemembersThatThereIsNone) {
  PlanCache<int, int> cache;
  int asked = 0;
  const auto refuse = [&]() -> std::unique_ptr<int> {
    ++asked;
    return nullptr;
  };
  EXPECT_EQ(cache.find_or_create(1, refuse), nullptr);
  EXPECT_EQ(cache.find_or_create(1, refuse), nullptr);
  EXPECT_EQ(asked, 1);
}

TEST(PlanCache, AFailureLeavesNothing) {
  PlanCache<int, int> cache;
  const auto fail = []() -> std::unique_ptr<int> { throw std::runtime_error("no device"); };
  EXPECT_THROW(cache.find_or_create(1, fail), std::runtime_error);
  EXPECT_EQ(*cache.find_or_create(1, [] { return std::make_unique<int>(3); }), 3);
}

TEST(PlanCache, ForgetsWhatWasNotAskedForTheLongest) {
  PlanCache<int, int> cache(2);
  int made = 0;
  const auto create = [&] { return std::make_unique<int>(++made); };
  const std::shared_ptr<int> one = cache.find_or_create(1, create);
  const std::weak_ptr<int> two = cache.find_or_create(2, create);
  EXPECT_EQ(*cache.find_or_create(1, create), 1);
  EXPECT_EQ(*cache.find_or_create(3, create), 3);
  EXPECT_TRUE(two.expired()) << "1 was asked for after it";
  EXPECT_EQ(cache.find_or_create(1, create), one);
  EXPECT_EQ(*cache.find_or_create(2, create), 4) << "it is made again, in the place of 3";
  EXPECT_EQ(*cache.find_or_create(3, create), 5) << "in the place of 1";
  EXPECT_EQ(*one, 1) << "whoever holds it keeps it";
  EXPECT_EQ(*cache.find_or_create(1, create), 6);
}

TEST(PlanCache, ARefusalTakesAPlaceToo) {
  PlanCache<int, int> cache(1);
  int asked = 0;
  const auto refuse = [&]() -> std::unique_ptr<int> {
    ++asked;
    return nullptr;
  };
  EXPECT_EQ(cache.find_or_create(1, refuse), nullptr);
  EXPECT_EQ(cache.find_or_create(2, refuse), nullptr);
  EXPECT_EQ(cache.find_or_create(1, refuse), nullptr);
  EXPECT_EQ(asked, 3);
}

}  // namespace
}  // namespace meshloom::kernels::cuda
