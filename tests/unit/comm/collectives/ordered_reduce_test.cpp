// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/collectives/ordered_reduce.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "daemon/comm/group_checks.h"
#include "kernels/base/error.h"
#include "kernels/base/half.h"

namespace meshloom::comm {
namespace {

TEST(OrderedReduce, Bfloat16SumsAreKeptInFloatAndRoundedOnce) {
  // 256 + 1 + 1 is 258 in float32; rounded after every addition it would stay 256.
  const bfloat16 big[1] = {bfloat16(256.0f)}, one[1] = {bfloat16(1.0f)};
  const void* inputs[] = {big, one, one};
  bfloat16 out[1];
  reduce_in_order({}, DType::kBFloat16, ReduceOp::kSum, out, inputs, 1);
  EXPECT_EQ(static_cast<float>(out[0]), 258.0f);
}

TEST(OrderedReduce, SameBitsForEveryThreadCountAndCut) {
  constexpr std::int64_t n = 150'001;
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> data(3, std::vector<float>(n));
  for (auto& values : data)
    for (float& value : values) value = normal(random);
  const void* inputs[] = {data[0].data(), data[1].data(), data[2].data()};
  std::vector<float> one(n), two(n), pieces(n);
  reduce_in_order({1}, DType::kFloat32, ReduceOp::kSum, one.data(), inputs, n);
  reduce_in_order({3}, DType::kFloat32, ReduceOp::kSum, two.data(), inputs, n);
  for (std::int64_t at = 0; at < n; at += 777) {
    const void* cut[] = {data[0].data() + at, data[1].data() + at, data[2].data() + at};
    reduce_in_order({1}, DType::kFloat32, ReduceOp::kSum, pieces.data() + at, cut,
                    std::min<std::int64_t>(777, n - at));
  }
  EXPECT_EQ(one, two);
  EXPECT_EQ(one, pieces);
}

TEST(OrderedReduce, OutputMayBeAnyInput) {
  for (int alias = 0; alias < 3; ++alias) {
    std::vector<std::vector<std::int32_t>> data(3, std::vector<std::int32_t>(5000));
    for (std::size_t r = 0; r < 3; ++r)
      for (std::size_t i = 0; i < 5000; ++i) data[r][i] = static_cast<std::int32_t>(i * (r + 1));
    const void* inputs[] = {data[0].data(), data[1].data(), data[2].data()};
    auto& out = data[static_cast<std::size_t>(alias)];
    reduce_in_order({}, DType::kInt32, ReduceOp::kSum, out.data(), inputs, 5000);
    for (std::size_t i = 0; i < 5000; ++i) ASSERT_EQ(out[i], static_cast<std::int32_t>(i * 6));
  }
}

TEST(OrderedReduce, IntegerSumsWrap) {
  const std::int32_t most[1] = {std::numeric_limits<std::int32_t>::max()}, one[1] = {1};
  const void* inputs[] = {most, one};
  std::int32_t out[1];
  reduce_in_order({}, DType::kInt32, ReduceOp::kSum, out, inputs, 1);
  EXPECT_EQ(out[0], std::numeric_limits<std::int32_t>::min());
}

TEST(OrderedReduce, RefusesFloat8) {
  EXPECT_THROW(check_reducible(DType::kFloat8E5M2, "all_reduce"), Unimplemented);
}

}  // namespace
}  // namespace meshloom::comm
