// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/kernels/cpu/kernel_test.h"

namespace meshloom::kernels::test {
namespace {

TEST(Embedding, CopiesRows) {
  Rng rng(1);
  for (const DType dtype : kFloatDTypes) {
    const HostTensor weight = random_tensor({50, 37}, dtype, rng);
    const HostTensor ids = random_ids({6, 100}, 50, rng);
    for_all_settings([&](const KernelContext& context) {
      HostTensor y({6, 100, 37}, dtype);
      backend().embedding(context, y, weight, ids);
      for (std::int64_t i = 0; i < y.numel(); ++i)
        ASSERT_EQ(y.get(i), weight.get(static_cast<std::int64_t>(ids.get(i / 37)) * 37 + i % 37));
    });
  }
}

// Of a size that is written past the caches, aligned and not, with gaps between the table's rows.
TEST(Embedding, LargeResults) {
  Rng rng(3);
  constexpr std::int64_t kRows = 1 << 15, kColumns = 272;
  HostTensor table = random_tensor({30, kColumns + 5}, DType::kFloat32, rng);
  TensorView weight = table;
  weight.shape = {30, kColumns};
  HostTensor ids = random_ids({kRows}, 30, rng);
  ids.set(77, -1);
  const HostTensor y({kRows * kColumns + 16}, DType::kFloat32);
  const auto past = reinterpret_cast<std::uintptr_t>(y.view().data) % 64 / sizeof(float);
  for_all_settings([&](const KernelContext& context) {
    if (context.threads.count != 2) return;
    for (const std::int64_t start :
         {(16 - static_cast<std::int64_t>(past)) % 16, std::int64_t{1}}) {
      TensorView out = y;
      out.shape = {kRows, kColumns};
      out.strides = {kColumns, 1};
      out.data = y.view().as<float>() + start;
      backend().embedding(context, out, weight, ids);
      for (std::int64_t i = 0; i < kRows; ++i) {
        const float* row = out.as<const float>() + i * kColumns;
        const auto id = static_cast<std::int64_t>(ids.get(i));
        for (std::int64_t c = 0; c < kColumns; ++c)
          ASSERT_EQ(row[c], id < 0 ? 0.0f : weight.as<const float>()[id * (kColumns + 5) + c]);
      }
    }
  });
}

TEST(Embedding, IdsOutsideHaveNoRow) {
  HostTensor weight({2, 3}, DType::kFloat32);
  for (std::int64_t i = 0; i < 6; ++i) weight.set(i, static_cast<double>(i + 1));
  HostTensor ids({2}, DType::kInt64);
  ids.set(0, 1.0);
  for (const double bad : {-1.0, -2.0, 2.0, 1e18}) {
    ids.set(1, bad);
    const HostTensor y({2, 3}, DType::kFloat32), dweight({2, 3}, DType::kFloat32);
    backend().fill({}, y, 7.0);
    backend().embedding({}, y, weight, ids);
    EXPECT_EQ(y.values(), (std::vector<double>{4, 5, 6, 0, 0, 0}));
    backend().fill({}, y, 7.0);
    backend().embedding_backward({}, dweight, y, ids, -100);
    EXPECT_EQ(dweight.values(), (std::vector<double>{0, 0, 0, 7, 7, 7}));
  }
}

TEST(EmbeddingBackward, AddsInTheOrderOfIds) {
  Rng rng(2);
  for (const DType dtype : kFloatDTypes) {
    const DType grad_dtype = dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
    const HostTensor dy = random_tensor({700, 83}, dtype, rng);
    const HostTensor ids = random_ids({700}, 13, rng);
    const HostTensor start = random_tensor({13, 83}, grad_dtype, rng);
    std::vector<double> expected = start.values();
    for (std::int64_t i = 0; i < 700; ++i) {
      const auto id = static_cast<std::int64_t>(ids.get(i));
      if (id == 4) continue;
      for (std::int64_t c = 0; c < 83; ++c) {
        double& sum = expected[id * 83 + c];
        sum += dy.get(i * 83 + c);
        // The very order: float32 additions one after the other give these bits.
        if (grad_dtype == DType::kFloat32) sum = static_cast<float>(sum);
      }
    }
    for_all_settings([&](const KernelContext& context) {
      HostTensor dweight({13, 83}, grad_dtype);
      backend().copy(context, dweight, start);
      backend().embedding_backward(context, dweight, dy, ids, 4);
      expect_close(dweight.values(), expected, 0.0);
    });
  }
}

}  // namespace
}  // namespace meshloom::kernels::test
