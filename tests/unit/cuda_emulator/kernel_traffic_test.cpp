// SPDX-License-Identifier: Apache-2.0
// How many bytes the kernels that memory bounds move: at most 1.05 times what they must.
#include <fmt/format.h>

#include <cstdint>
#include <vector>

#include "tests/support/test_backend.h"
#include "tests/support/test_tensor.h"

namespace meshloom::kernels::test {
namespace {

constexpr double kMostOverLeast = 1.05;
/// Of fewer bytes the ends of rows and tables of counts are a large part.
constexpr std::uint64_t kFewestBytes = 256 << 10;
constexpr std::int64_t kRows = 384, kColumns = 1024;
const Shape kShape{kRows, kColumns};

class KernelTraffic : public ::testing::TestWithParam<DType> {
 protected:
  static void SetUpTestSuite() { g_recorded = meshloom::testing::record_launches(); }
  void SetUp() override {
    if (!g_recorded) GTEST_SKIP() << "this device counts no bytes";
  }
  static void TearDownTestSuite() {
    if (!g_recorded) return;
    finish();
    int counted = 0;
    for (const emulator::KernelRecord& kernel : meshloom::testing::recorded_launches()) {
      if (kernel.least < kFewestBytes) continue;
      ++counted;
      EXPECT_LE(static_cast<double>(kernel.moved),
                kMostOverLeast * static_cast<double>(kernel.least))
          << kernel.kernel;
    }
    EXPECT_GE(counted, 30) << "kernels that move so much";
  }

  TestTensor matrix() const { return {kShape, GetParam()}; }
  TestTensor row() const { return {{kColumns}, GetParam()}; }
  static TestTensor floats(const Shape& shape) { return {shape, DType::kFloat32}; }
  /// Each of the first kRows ids once.
  static TestTensor ids() {
    TestTensor ids({kRows}, DType::kInt64);
    for (std::int64_t i = 0; i < kRows; ++i) ids.set_int64(i, i * 5 % kRows);
    return ids;
  }

  KernelContext context_ = test_context();

 private:
  static bool g_recorded;
};
bool KernelTraffic::g_recorded = false;

TEST_P(KernelTraffic, OfCopies) {
  backend().copy(context_, matrix(), matrix());
  backend().copy(context_, TestTensor({kColumns, kRows}, GetParam(), Layout::kPermuted),
                 TestTensor({kColumns, kRows}, GetParam()));
  backend().copy(context_, floats(kShape), matrix());
  backend().copy(context_, matrix(), floats(kShape));
  backend().fill(context_, matrix(), 1.0);
}

TEST_P(KernelTraffic, OfElementwiseCalls) {
  backend().unary(context_, UnaryOp::kGelu, matrix(), matrix(), 0.0);
  backend().unary_backward(context_, UnaryOp::kGelu, matrix(), matrix(), matrix(), matrix(), 0.0);
  backend().binary(context_, BinaryOp::kAdd, matrix(), matrix(), matrix());
  backend().where(context_, matrix(), TestTensor(kShape, DType::kBool), matrix(), matrix());
  backend().swiglu(context_, matrix(), matrix(), matrix());
  backend().swiglu_backward(context_, matrix(), matrix(), matrix(), matrix(), matrix());
  backend().dropout(context_, matrix(), matrix(), {.p = 0.1, .random = {1, 2}});
  backend().fill_normal(context_, matrix(), {1, 2}, 0, 0.0f, 1.0f);
}

TEST_P(KernelTraffic, OfReductions) {
  backend().reduce(context_, ReduceOp::kSum, floats({kRows, 1}), matrix(), 0.0);
  backend().reduce(context_, ReduceOp::kSum, floats({1, kColumns}), matrix(), 0.0);
  backend().reduce(context_, ReduceOp::kVar, floats({kRows, 1}), matrix(), 1.0);
  const TestTensor first = matrix(), second = matrix();
  const std::vector<TensorView> all{first, second};
  backend().sum_of_squares(context_, floats({1}), all, false);
  backend().first_nonfinite(context_, TestTensor({1}, DType::kInt64), all);
}

TEST_P(KernelTraffic, OfSoftmaxAndNorms) {
  backend().softmax(context_, matrix(), matrix(), false);
  backend().softmax_backward(context_, matrix(), matrix(), matrix(), true);
  for (const NormKind kind : {NormKind::kLayer, NormKind::kRms}) {
    const bool layer = kind == NormKind::kLayer;
    const TestTensor mean = floats({kRows}), rstd = floats({kRows});
    const auto only_layer = [&](const TestTensor& tensor) {
      return layer ? tensor.view() : TensorView{};
    };
    backend().norm(context_,
                   {.y = matrix(),
                    .sum = matrix(),
                    .mean = only_layer(mean),
                    .rstd = rstd,
                    .x = matrix(),
                    .residual = matrix(),
                    .weight = row(),
                    .bias = only_layer(row())},
                   {1e-5, kind});
    backend().norm_backward(context_, {.dx = matrix(),
                                       .dweight = floats({kColumns}),
                                       .dbias = only_layer(floats({kColumns})),
                                       .dy = matrix(),
                                       .x = matrix(),
                                       .weight = row(),
                                       .mean = only_layer(mean),
                                       .rstd = rstd});
  }
}

TEST_P(KernelTraffic, OfEmbeddingAndRope) {
  backend().embedding(context_, matrix(), matrix(), ids());
  backend().embedding_backward(context_, floats(kShape), matrix(), ids(), -1);
  const std::int64_t heads = 8, dims = 64, length = kRows * kColumns / heads / dims;
  const TestTensor x({1, heads, length, dims}, GetParam()), y({1, heads, length, dims}, GetParam());
  backend().rope(context_, y, x,
                 {.cos = floats({length, dims / 2}), .sin = floats({length, dims / 2})});
  backend().attention_delta(context_, floats({1, heads, length}), x, y);
}

TEST_P(KernelTraffic, OfLosses) {
  const TestTensor logits = matrix(), targets = ids(), losses = floats({kRows}),
                   lse = floats({kRows});
  const CrossEntropyRows rows{.logits = logits, .targets = targets, .losses = losses, .lse = lse};
  backend().cross_entropy(context_, rows, {});
  backend().cross_entropy_backward(context_, matrix(), {}, rows, {});
}

TEST_P(KernelTraffic, OfEpilogues) {
  MatmulOptions gelu;
  gelu.epilogue = Epilogue::kBiasGelu;
  const TestTensor bias = row();
  gelu.bias = bias;
  backend().matmul(context_, matrix(), TestTensor({kRows, 16}, GetParam()),
                   TestTensor({16, kColumns}, GetParam()), gelu);
  MatmulOptions scaled;
  const TestTensor scale = floats({kRows});
  scaled.scales.rows = scale;
  backend().matmul(context_, matrix(), TestTensor({kRows, 16}, GetParam()),
                   TestTensor({16, kColumns}, GetParam()), scaled);
}

TEST_P(KernelTraffic, OfOptimizers) {
  const TestTensor master = floats(kShape), grad = floats(kShape), first = floats(kShape),
                   second = floats(kShape), working = matrix(), lr = floats({1}),
                   step({1}, DType::kInt64);
  step.set(0, 2);
  const bool copies = GetParam() == DType::kBFloat16;
  const std::vector<OptimizerTensor> tensors{
      {master, grad, first, second, copies ? working.view() : TensorView{}, 0.1f}};
  backend().adam_step(context_, tensors, {.lr = lr, .step = step}, {});
  backend().sgd_step(context_, tensors, {.lr = lr, .step = step}, {.momentum = 0.9f});
}

INSTANTIATE_TEST_SUITE_P(Of, KernelTraffic, ::testing::Values(DType::kFloat32, DType::kBFloat16),
                         [](const auto& info) { return dtype_name(info.param); });

}  // namespace
}  // namespace meshloom::kernels::test
