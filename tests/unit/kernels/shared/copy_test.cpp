// SPDX-License-Identifier: Apache-2.0
#include "tests/support/test_tensor.h"

namespace meshloom::kernels::test {
namespace {

const std::vector<DType> kDTypes{
    DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64,    DType::kInt64,
    DType::kInt32,   DType::kUInt8,    DType::kBool,    DType::kFloat8E4M3, DType::kFloat8E5M2};

// What one element becomes, by TestTensor's own scalar conversions.
double converted(double value, DType from, DType to) {
  TestTensor a({1}, from);
  a.set(0, value);
  TestTensor b({1}, to);
  b.set(0, a.at(0));
  return b.at(0);
}

TEST(Copy, EveryPairOfDTypes) {
  Rng rng(1);
  for (const DType from : kDTypes) {
    const TestTensor src = random_tensor({3, 17, 19}, from, rng, 0.0, 100.0);
    for (const DType to : kDTypes) {
      SCOPED_TRACE(std::string(dtype_name(from)) + " to " + dtype_name(to));
      std::vector<double> expected = src.values();
      for (double& v : expected) v = converted(v, from, to);
      for_all_settings([&](const KernelContext& context) {
        TestTensor dst({3, 17, 19}, to);
        backend().copy(context, dst, src);
        expect_close(dst.values(), expected, 0.0);
      });
    }
  }
}

TEST(Copy, EveryPairOfLayouts) {
  Rng rng(2);
  for (const Shape& shape : {Shape{3, 37, 33}, Shape{70, 36}, Shape{1, 9, 1, 50}, Shape{7}}) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kInt64, DType::kUInt8}) {
      for (const Layout from : kAllLayouts) {
        const TestTensor src = random_tensor(shape, dtype, rng, 0.0, 100.0, from);
        for (const Layout to : kAllLayouts) {
          for_all_settings([&](const KernelContext& context) {
            TestTensor dst(shape, dtype, to);
            backend().copy(context, dst, src);
            expect_close(dst.values(), src.values(), 0.0);
          });
        }
      }
    }
  }
}

TEST(Copy, ExpandsAStrideOfZero) {
  const TestTensor row = [] {
    TestTensor t({5}, DType::kFloat32);
    for (int i = 0; i < 5; ++i) t.set(i, i);
    return t;
  }();
  TensorView expanded = row.view();
  expanded.shape = {4, 5};
  expanded.strides = {0, 1};
  TestTensor dst({4, 5}, DType::kBFloat16);
  backend().copy(test_context(), dst, expanded);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(dst.at(i), i % 5);
}

TEST(Copy, RoundsToNearestEven) {
  // Halfway between two bfloat16 neighbours, and just beside.
  TestTensor src({6}, DType::kFloat32);
  const float values[] = {1.00390625f,  1.01171875f, 1.00390637f,
                          -1.00390625f, 1.00390613f, 65520.0f};
  for (int i = 0; i < 6; ++i) src.set(i, values[i]);
  const double expected[] = {1.0, 1.015625, 1.0078125, -1.0, 1.0, 65536.0};
  for_all_settings([&](const KernelContext& context) {
    TestTensor dst({6}, DType::kBFloat16);
    backend().copy(context, dst, src);
    for (int i = 0; i < 6; ++i) EXPECT_EQ(dst.at(i), expected[i]) << i;
    TestTensor half({6}, DType::kFloat16);
    backend().copy(context, half, src);
    EXPECT_TRUE(std::isinf(half.at(5)));
  });
}

TEST(Copy, Float64IsRoundedOnce) {
  // Just above a tie: through float32 it would become the tie and round down.
  TestTensor src({1}, DType::kFloat64);
  src.set(0, 1.00390625 + 1e-12);
  TestTensor dst({1}, DType::kBFloat16);
  backend().copy(test_context(), dst, src);
  EXPECT_EQ(dst.at(0), 1.0078125);
}

TEST(Copy, Float8MovesWithoutAChange) {
  TestTensor src({3}, DType::kUInt8);
  for (int i = 0; i < 3; ++i) src.set(i, 40 + i);
  TensorView from = src.view();
  from.dtype = DType::kFloat8E4M3;
  TestTensor dst({3}, DType::kUInt8);
  TensorView to = dst.view();
  to.dtype = DType::kFloat8E4M3;
  backend().copy(test_context(), to, from);
  EXPECT_EQ(dst.values(), src.values());
}

TEST(Fill, EveryDTypeAndLayout) {
  for (const DType dtype : kDTypes) {
    for (const Layout layout : kAllLayouts) {
      for_all_settings([&](const KernelContext& context) {
        TestTensor dst({4, 9, 13}, dtype, layout);
        backend().fill(context, dst, 3.0);
        const double expected = dtype == DType::kBool ? 1.0 : 3.0;
        for (const double v : dst.values()) ASSERT_EQ(v, expected);
      });
    }
  }
}

TEST(Copy, EmptyTensors) {
  const TestTensor empty({0, 4}, DType::kFloat32);
  EXPECT_NO_THROW(backend().copy(test_context(), empty, empty));
  EXPECT_NO_THROW(backend().fill(test_context(), empty, 1.0));
}

}  // namespace
}  // namespace meshloom::kernels::test
