// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/files/same_values.h"

#include <gtest/gtest.h>

#include <limits>

#include "kernels/base/half.h"
#include "tests/support/temp_folder.h"

namespace meshloom::train {
namespace {

template <typename T>
StoredTensor store(const test::TempFolder& folder, const std::string& name, DType dtype,
                   std::vector<T> values, Shape shape = {}) {
  if (shape.empty()) shape = {static_cast<std::int64_t>(values.size())};
  write_safetensors(folder / name, {{"x", make_view(values.data(), dtype, shape)}});
  const auto file = SafetensorsFile::open(folder / name);
  return {file, file->find("x")};
}

StoredTensor floats(const test::TempFolder& folder, const std::string& name,
                    std::vector<float> values, Shape shape = {}) {
  return store(folder, name, DType::kFloat32, std::move(values), std::move(shape));
}

TEST(SameValues, ComparesShapeAndElements) {
  const test::TempFolder folder;
  const StoredTensor a = floats(folder, "a", {1, 2, 0, 4});
  EXPECT_TRUE(same_values(a, a));
  EXPECT_TRUE(same_values(a, floats(folder, "b", {1, 2, -0.0f, 4})));
  EXPECT_FALSE(same_values(a, floats(folder, "c", {1, 2, 0, 5})));
  EXPECT_FALSE(same_values(a, floats(folder, "d", {1, 2, 0, 4}, {2, 2})));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(same_values(a, floats(folder, "e", {1, 2, nan, 4})));
}

TEST(SameValues, AcrossDtypes) {
  const test::TempFolder folder;
  const StoredTensor a = floats(folder, "a", {1, 0.5f, -3});
  const auto halves = [&](auto type, DType dtype, float third) {
    using T = decltype(type);
    return store<T>(folder, "other", dtype, {T(1.0f), T(0.5f), T(third)});
  };
  EXPECT_TRUE(same_values(a, halves(bfloat16(), DType::kBFloat16, -3)));
  EXPECT_FALSE(same_values(a, halves(bfloat16(), DType::kBFloat16, 3)));
  EXPECT_TRUE(same_values(a, halves(float16(), DType::kFloat16, -3)));
  EXPECT_TRUE(same_values(a, store<double>(folder, "wide", DType::kFloat64, {1, 0.5, -3})));
}

TEST(SameValues, OfLargeTensorsWhatWasFoundHoldsUntilAFileIsChanged) {
  const test::TempFolder folder;
  std::vector<float> values(std::size_t{1} << 20, 1.0f);
  const StoredTensor a = floats(folder, "a", values);
  StoredTensor b = floats(folder, "b", values);
  EXPECT_TRUE(same_values(a, b));
  EXPECT_TRUE(same_values(a, b));
  values.back() = 2.0f;  // in the last piece
  b = floats(folder, "b", values);
  EXPECT_FALSE(same_values(a, b));
  EXPECT_FALSE(same_values(a, b));
}

}  // namespace
}  // namespace meshloom::train
