// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/collectives/ordered_reduce.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "daemon/comm/group_checks.h"
#include "kernels/base/error.h"
#include "kernels/base/half.h"

namespace meshloom::comm {
namespace {

/// What three ranks contribute.
template <typename T>
std::vector<std::vector<T>> drawn(unsigned seed, std::int64_t n) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<std::vector<T>> data(3, std::vector<T>(static_cast<std::size_t>(n)));
  for (auto& values : data)
    for (T& value : values) value = static_cast<T>(normal(random));
  return data;
}

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
  const auto data = drawn<float>(5, n);
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

TEST(OrderedReduce, AveragesAreDividedBeforeTheyAreRounded) {
  // (256 + 1 + 1) / 3 is 86. Rounded to bfloat16 first, 257 of the two-rank sum would be 256.
  const bfloat16 big[1] = {bfloat16(256.0f)}, one[1] = {bfloat16(1.0f)};
  const void* inputs[] = {big, one, one};
  bfloat16 out[1];
  reduce_in_order({}, DType::kBFloat16, ReduceOp::kAvg, out, inputs, 1);
  EXPECT_EQ(static_cast<float>(out[0]), 86.0f);
  reduce_in_order({}, DType::kBFloat16, ReduceOp::kAvg, out, {inputs, 2}, 1);
  EXPECT_EQ(static_cast<float>(out[0]), 128.0f);
  const double x[1] = {1.0}, y[1] = {0x1p-40};
  const void* doubles[] = {x, y};
  double half[1];
  reduce_in_order({}, DType::kFloat64, ReduceOp::kAvg, half, doubles, 1);
  EXPECT_EQ(half[0], 0.5 + 0x1p-41);
}

TEST(OrderedReduce, RefusesAveragesOfIntegers) {
  for (const DType dtype : {DType::kInt64, DType::kInt32, DType::kUInt8, DType::kBool}) {
    std::int64_t value[1] = {4};
    const void* inputs[] = {value};
    try {
      reduce_in_order({}, dtype, ReduceOp::kAvg, value, inputs, 1);
      ADD_FAILURE() << "an average of " << dtype_name(dtype);
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find(dtype_name(dtype)), std::string::npos);
    }
    EXPECT_EQ(value[0], 4);
  }
}

TEST(OrderedReduce, ProductsAreKeptInFloatAndRoundedOnce) {
  // 1.0390625 cubed is 1.1218, so 1.125; rounded after the first product it would be 1.1171875.
  const bfloat16 step[1] = {bfloat16(1.0390625f)};
  const void* inputs[] = {step, step, step};
  bfloat16 out[1];
  reduce_in_order({}, DType::kBFloat16, ReduceOp::kProd, out, inputs, 1);
  EXPECT_EQ(static_cast<float>(out[0]), 1.125f);
  const std::int32_t large[1] = {0x10001}, also[1] = {0x10000};
  const void* integers[] = {large, also};
  std::int32_t wrapped[1];
  reduce_in_order({}, DType::kInt32, ReduceOp::kProd, wrapped, integers, 1);
  EXPECT_EQ(wrapped[0], 0x10000);
}

TEST(OrderedReduce, PartialResultsAreNeitherRoundedNorDividedBeforeTheEnd) {
  // (256 + 1) and (1 + 2), of which bfloat16 would lose the first one's last bit.
  const bfloat16 big[1] = {bfloat16(256.0f)}, one[1] = {bfloat16(1.0f)}, two[1] = {bfloat16(2.0f)};
  const void* left[] = {big, one};
  const void* right[] = {one, two};
  float partials[2];
  ASSERT_EQ(partial_dtype(DType::kBFloat16), DType::kFloat32);
  reduce_partially({}, DType::kBFloat16, ReduceOp::kAvg, &partials[0], left, 1);
  reduce_partially({}, DType::kBFloat16, ReduceOp::kAvg, &partials[1], right, 1);
  EXPECT_EQ(partials[0], 257.0f);
  const void* both[] = {&partials[0], &partials[1]};
  bfloat16 out[1];
  finish_reduction({}, DType::kBFloat16, ReduceOp::kSum, out, both, 1, 4);
  EXPECT_EQ(static_cast<float>(out[0]), 260.0f);
  finish_reduction({}, DType::kBFloat16, ReduceOp::kAvg, out, both, 1, 4);
  EXPECT_EQ(static_cast<float>(out[0]), 65.0f);
}

TEST(OrderedReduce, PartialResultsOfOneContributionEachGiveTheWholeReduction) {
  constexpr std::int64_t n = 40'003;
  const auto data = drawn<float16>(9, n);
  const void* inputs[] = {data[0].data(), data[1].data(), data[2].data()};
  for (const ReduceOp op :
       {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kProd}) {
    std::vector<float16> whole(n), ended(n);
    reduce_in_order({}, DType::kFloat16, op, whole.data(), inputs, n);
    std::vector<std::vector<float>> partials(3, std::vector<float>(n));
    for (std::size_t r = 0; r < 3; ++r)
      reduce_partially({}, DType::kFloat16, op, partials[r].data(), {&inputs[r], 1}, n);
    const void* parts[] = {partials[0].data(), partials[1].data(), partials[2].data()};
    finish_reduction({}, DType::kFloat16, op, ended.data(), parts, n, 3);
    EXPECT_EQ(std::memcmp(whole.data(), ended.data(), n * sizeof(float16)), 0)
        << reduce_op_name(op);
  }
}

TEST(OrderedReduce, RefusesFloat8) {
  EXPECT_THROW(check_reducible(DType::kFloat8E5M2, ReduceOp::kSum, "all_reduce"), Unimplemented);
}

}  // namespace
}  // namespace meshloom::comm
