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
  int* const first = cache.find_or_create(5, create);
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

}  // namespace
}  // namespace meshloom::kernels::cuda
