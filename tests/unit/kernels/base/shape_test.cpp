// SPDX-License-Identifier: Apache-2.0
#include "kernels/base/shape.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/base/error.h"

namespace meshloom {
namespace {

TEST(Dims, GrowsInsertsAndErases) {
  Dims dims{2, 3};
  dims.push_back(5);
  dims.insert(0, 7);
  dims.insert(4, 9);
  EXPECT_EQ(dims, (Dims{7, 2, 3, 5, 9}));
  dims.erase(1);
  EXPECT_EQ(to_string(dims), "[7, 3, 5, 9]");
  EXPECT_EQ(dims.back(), 9);
  EXPECT_NE(dims, (Dims{7, 3, 5}));
  EXPECT_EQ(to_string(Dims{}), "[]");
}

TEST(Dims, RefusesMoreThanItHolds) {
  const std::vector<std::int64_t> nine(kMaxDims + 1, 1);
  EXPECT_THROW(Dims{std::span<const std::int64_t>(nine)}, InvalidArgument);
  Dims full{std::span<const std::int64_t>(nine.data(), kMaxDims)};
  EXPECT_THROW(full.push_back(1), InvalidArgument);
  EXPECT_THROW(full.insert(0, 1), InvalidArgument);
}

TEST(Numel, CountsAndRefuses) {
  EXPECT_EQ(numel({}), 1);
  EXPECT_EQ(numel({3, 0, 5}), 0);
  EXPECT_EQ(numel({1 << 20, 1 << 20}), std::int64_t{1} << 40);
  EXPECT_THROW(numel({2, -1}), InvalidArgument);
  EXPECT_THROW(numel({std::int64_t{1} << 40, std::int64_t{1} << 40}), InvalidArgument);
}

TEST(Strides, RowMajor) {
  EXPECT_EQ(contiguous_strides({2, 3, 4}), (Strides{12, 4, 1}));
  EXPECT_TRUE(is_contiguous({2, 3, 4}, {12, 4, 1}));
  EXPECT_FALSE(is_contiguous({2, 3, 4}, {12, 1, 3}));
  // The stride of a dim of size 1 is never used, and nothing is ever read of an empty tensor.
  EXPECT_TRUE(is_contiguous({2, 1, 4}, {4, 99, 1}));
  EXPECT_TRUE(is_contiguous({0, 3}, {77, 5}));
}

TEST(NormalizeDim, CountsFromTheEnd) {
  EXPECT_EQ(normalize_dim(-1, 3, "sum"), 2);
  EXPECT_EQ(normalize_dim(0, 3, "sum"), 0);
  for (const std::int64_t bad : {3, -4}) {
    try {
      normalize_dim(bad, 3, "sum");
      FAIL();
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(std::string(error.what()),
                "sum: dim is " + std::to_string(bad) + ", expected -3 to 2");
    }
  }
}

TEST(Broadcast, NumpyRules) {
  EXPECT_EQ(broadcast_shapes({5, 1, 3}, {4, 3}, "add"), (Shape{5, 4, 3}));
  EXPECT_EQ(broadcast_shapes({}, {2}, "add"), (Shape{2}));
  EXPECT_EQ(broadcast_shapes({0}, {1}, "add"), (Shape{0}));
  EXPECT_THROW(broadcast_shapes({2, 3}, {4}, "add"), InvalidArgument);
}

}  // namespace
}  // namespace meshloom
