// SPDX-License-Identifier: Apache-2.0
#include "tests/support/test_tensor.h"

namespace meshloom::kernels::test {
namespace {

TEST(Embedding, CopiesRows) {
  Rng rng(1);
  for (const DType dtype : kFloatDTypes) {
    const TestTensor weight = random_tensor({50, 37}, dtype, rng);
    const TestTensor ids = random_ids({6, 100}, 50, rng);
    for_all_settings([&](const KernelContext& context) {
      TestTensor y({6, 100, 37}, dtype);
      backend().embedding(context, y, weight, ids);
      for (std::int64_t i = 0; i < y.numel(); ++i)
        ASSERT_EQ(y.at(i), weight.at(static_cast<std::int64_t>(ids.at(i / 37)) * 37 + i % 37));
    });
  }
}

TEST(Embedding, IdsOutsideHaveNoRow) {
  TestTensor weight({2, 3}, DType::kFloat32);
  for (std::int64_t i = 0; i < 6; ++i) weight.set(i, static_cast<double>(i + 1));
  TestTensor ids({2}, DType::kInt64);
  ids.set(0, 1.0);
  for (const double bad : {-1.0, -2.0, 2.0, 1e18}) {
    ids.set(1, bad);
    const TestTensor y({2, 3}, DType::kFloat32), dweight = zeros({2, 3}, DType::kFloat32);
    backend().fill(test_context(), y, 7.0);
    backend().embedding(test_context(), y, weight, ids);
    EXPECT_EQ(y.values(), (std::vector<double>{4, 5, 6, 0, 0, 0}));
    backend().fill(test_context(), y, 7.0);
    backend().embedding_backward(test_context(), dweight, y, ids, -100);
    EXPECT_EQ(dweight.values(), (std::vector<double>{0, 0, 0, 7, 7, 7}));
  }
}

TEST(EmbeddingBackward, AddsInTheOrderOfIds) {
  Rng rng(2);
  for (const DType dtype : kFloatDTypes) {
    const DType grad_dtype = dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
    const TestTensor dy = random_tensor({700, 83}, dtype, rng);
    const TestTensor ids = random_ids({700}, 13, rng);
    const TestTensor start = random_tensor({13, 83}, grad_dtype, rng);
    std::vector<double> expected = start.values();
    for (std::int64_t i = 0; i < 700; ++i) {
      const auto id = static_cast<std::int64_t>(ids.at(i));
      if (id == 4) continue;
      for (std::int64_t c = 0; c < 83; ++c) {
        double& sum = expected[id * 83 + c];
        sum += dy.at(i * 83 + c);
        // The very order: float32 additions one after the other give these bits.
        if (grad_dtype == DType::kFloat32) sum = static_cast<float>(sum);
      }
    }
    for_all_settings([&](const KernelContext& context) {
      TestTensor dweight({13, 83}, grad_dtype);
      backend().copy(context, dweight, start);
      backend().embedding_backward(context, dweight, dy, ids, 4);
      expect_close(dweight.values(), expected, 0.0);
    });
  }
}

// A vocabulary of GPT-2's size with ids of which many come again, at both ends and beside.
TEST(EmbeddingBackward, OfManyRowsWithRepeatedIds) {
  constexpr std::int64_t kTableRows = 50000, kIds = 5000, kColumns = 5;
  Rng rng(3);
  const TestTensor dy = random_tensor({kIds, kColumns}, DType::kFloat32, rng);
  const TestTensor ids({kIds}, DType::kInt64);
  for (std::int64_t i = 0; i < kIds; ++i) {
    const auto drawn = static_cast<std::int64_t>(rng() % kTableRows);
    const std::int64_t often[] = {0, kTableRows - 1, 255, 256, 300};
    ids.set(i, static_cast<double>(i % 3 == 0 ? often[rng() % 5] : drawn));
  }
  std::vector<float> expected(kTableRows * kColumns, 0.5f);
  for (std::int64_t i = 0; i < kIds; ++i)
    for (std::int64_t c = 0; c < kColumns; ++c)
      expected[static_cast<std::size_t>(static_cast<std::int64_t>(ids.at(i)) * kColumns + c)] +=
          static_cast<float>(dy.at(i * kColumns + c));
  for_all_settings([&](const KernelContext& context) {
    const TestTensor dweight({kTableRows, kColumns}, DType::kFloat32);
    backend().fill(context, dweight, 0.5);
    backend().embedding_backward(context, dweight, dy, ids, -100);
    const std::vector<double> sums = dweight.values();
    for (std::size_t i = 0; i < sums.size(); ++i) ASSERT_EQ(sums[i], expected[i]) << i;
  });
}

}  // namespace
}  // namespace meshloom::kernels::test
