// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/kernels/cpu/kernel_test.h"

namespace meshloom::kernels::test {
namespace {

const std::vector<DType> kDTypes{DType::kFloat32, DType::kBFloat16, DType::kFloat16,
                                 DType::kFloat64, DType::kInt64,    DType::kInt32,
                                 DType::kUInt8,   DType::kBool};

// What one element becomes, by HostTensor's own scalar conversions.
double converted(double value, DType from, DType to) {
  HostTensor a({1}, from);
  a.set(0, value);
  HostTensor b({1}, to);
  b.set(0, a.get(0));
  return b.get(0);
}

TEST(Copy, EveryPairOfDTypes) {
  Rng rng(1);
  for (const DType from : kDTypes) {
    const HostTensor src = random_tensor({3, 37, 19}, from, rng, 0.0, 100.0);
    for (const DType to : kDTypes) {
      SCOPED_TRACE(std::string(dtype_name(from)) + " to " + dtype_name(to));
      std::vector<double> expected = src.values();
      for (double& v : expected) v = converted(v, from, to);
      for_all_settings([&](const KernelContext& context) {
        HostTensor dst({3, 37, 19}, to);
        backend().copy(context, dst, src);
        expect_close(dst.values(), expected, 0.0);
      });
    }
  }
}

TEST(Copy, EveryPairOfLayouts) {
  Rng rng(2);
  for (const Shape& shape : {Shape{5, 67, 33}, Shape{130, 70}, Shape{1, 9, 1, 50}, Shape{7}}) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kInt64, DType::kUInt8}) {
      for (const Layout from : kAllLayouts) {
        const HostTensor src = random_tensor(shape, dtype, rng, 0.0, 100.0, from);
        for (const Layout to : kAllLayouts) {
          for_all_settings([&](const KernelContext& context) {
            HostTensor dst(shape, dtype, to);
            backend().copy(context, dst, src);
            expect_close(dst.values(), src.values(), 0.0);
          });
        }
      }
    }
  }
}

TEST(Copy, LeavesGapsAlone) {
  Rng rng(3);
  const HostTensor src = random_tensor({6, 11}, DType::kFloat32, rng, 1.0, 2.0);
  HostTensor dst({6, 11}, DType::kFloat32, Layout::kPadded);
  backend().copy({}, dst, src);
  const auto* data = reinterpret_cast<const float*>(dst.memory().data());
  const auto nonzero =
      std::count_if(data, data + dst.memory().size() / 4, [](float v) { return v != 0; });
  EXPECT_EQ(nonzero, 66);
}

TEST(Copy, ExpandsAStrideOfZero) {
  const HostTensor row = [] {
    HostTensor t({5}, DType::kFloat32);
    for (int i = 0; i < 5; ++i) t.set(i, i);
    return t;
  }();
  TensorView expanded = row.view();
  expanded.shape = {4, 5};
  expanded.strides = {0, 1};
  HostTensor dst({4, 5}, DType::kBFloat16);
  backend().copy({}, dst, expanded);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(dst.get(i), i % 5);
}

TEST(Copy, RoundsToNearestEven) {
  // Halfway between two bfloat16 neighbours, and just beside.
  HostTensor src({6}, DType::kFloat32);
  const float values[] = {1.00390625f,  1.01171875f, 1.00390637f,
                          -1.00390625f, 1.00390613f, 65520.0f};
  for (int i = 0; i < 6; ++i) src.set(i, values[i]);
  const double expected[] = {1.0, 1.015625, 1.0078125, -1.0, 1.0, 65536.0};
  for_all_settings([&](const KernelContext& context) {
    HostTensor dst({6}, DType::kBFloat16);
    backend().copy(context, dst, src);
    for (int i = 0; i < 6; ++i) EXPECT_EQ(dst.get(i), expected[i]) << i;
    HostTensor half({6}, DType::kFloat16);
    backend().copy(context, half, src);
    EXPECT_TRUE(std::isinf(half.get(5)));
  });
}

TEST(Copy, Float64IsRoundedOnce) {
  // Just above a tie: through float32 it would become the tie and round down.
  HostTensor src({1}, DType::kFloat64);
  src.set(0, 1.00390625 + 1e-12);
  HostTensor dst({1}, DType::kBFloat16);
  backend().copy({}, dst, src);
  EXPECT_EQ(dst.get(0), 1.0078125);
}

TEST(Copy, LargeTensorsPastTheCaches) {
  Rng rng(4);
  const Shape shape{9, 1024, 1027};
  HostTensor src(shape, DType::kFloat32);
  auto* data = src.view().as<std::uint32_t>();
  for (std::int64_t i = 0; i < src.numel(); ++i)
    data[i] = static_cast<std::uint32_t>(i * 2654435761u) & 0x7f7fffffu;
  for_all_settings([&](const KernelContext& context) {
    if (context.threads.count == 1) return;
    HostTensor dst(shape, DType::kFloat32, Layout::kOddStart);
    backend().copy(context, dst, src);
    EXPECT_EQ(std::memcmp(dst.view().data, src.view().data, src.view().bytes()), 0);
  });
}

TEST(Copy, Float8MovesWithoutAChange) {
  HostTensor src({3}, DType::kUInt8);
  for (int i = 0; i < 3; ++i) src.set(i, 40 + i);
  TensorView from = src.view();
  from.dtype = DType::kFloat8E4M3;
  HostTensor dst({3}, DType::kUInt8);
  TensorView to = dst.view();
  to.dtype = DType::kFloat8E4M3;
  backend().copy({}, to, from);
  EXPECT_EQ(dst.values(), src.values());
}

TEST(Fill, EveryDTypeAndLayout) {
  for (const DType dtype : kDTypes) {
    for (const Layout layout : kAllLayouts) {
      for_all_settings([&](const KernelContext& context) {
        HostTensor dst({4, 9, 13}, dtype, layout);
        backend().fill(context, dst, 3.0);
        const double expected = dtype == DType::kBool ? 1.0 : 3.0;
        for (const double v : dst.values()) ASSERT_EQ(v, expected);
      });
    }
  }
}

TEST(Copy, EmptyTensors) {
  const HostTensor empty({0, 4}, DType::kFloat32);
  EXPECT_NO_THROW(backend().copy({}, empty, empty));
  EXPECT_NO_THROW(backend().fill({}, empty, 1.0));
}

}  // namespace
}  // namespace meshloom::kernels::test
