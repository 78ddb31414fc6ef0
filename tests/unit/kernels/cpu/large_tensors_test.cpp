// SPDX-License-Identifier: Apache-2.0
// Tensors above the size from which results are written past the caches, and what threads must not
// change. What the kernels compute is tested in tests/unit/kernels/shared.
#include <cmath>
#include <cstring>

#include "tests/unit/kernels/cpu/kernel_test.h"

namespace meshloom::kernels::test {
namespace {

double gelu_tanh(double x) {
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
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

// The result is large enough to be written past the caches, aligned and not, with gaps between the
// table's rows.
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

TEST(FillNormal, HasTheMomentsOfANormal) {
  HostTensor x({1 << 20}, DType::kFloat32);
  backend().fill_normal({}, x, {5, 6}, 0, 0.0f, 1.0f);
  double sum = 0, squares = 0, fourth = 0;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const double v = x.get(i);
    sum += v;
    squares += v * v;
    fourth += v * v * v * v;
  }
  const auto n = static_cast<double>(x.numel());
  EXPECT_NEAR(sum / n, 0.0, 0.005);
  EXPECT_NEAR(squares / n, 1.0, 0.01);
  EXPECT_NEAR(fourth / n, 3.0, 0.05);
}

TEST(Softmax, LargeOutputsPastTheCaches) {
  Rng rng(3);
  const HostTensor x = random_tensor({4097, 2053}, DType::kFloat32, rng);
  for_all_settings([&](const KernelContext& context) {
    if (context.threads.count != 2) return;
    HostTensor y({4097, 2053}, DType::kFloat32);
    backend().softmax(context, y, x, false);
    for (const std::int64_t row : {0, 2048, 4096}) {
      double sum = 0.0;
      for (std::int64_t i = 0; i < 2053; ++i) sum += y.get(row * 2053 + i);
      EXPECT_NEAR(sum, 1.0, 1e-5);
    }
  });
}

TEST(Unary, InPlaceAndLarge) {
  Rng rng(4);
  const HostTensor x = random_tensor({2051, 4099}, DType::kFloat32, rng);
  for_all_settings([&](const KernelContext& context) {
    if (context.threads.count != 2) return;
    HostTensor y({2051, 4099}, DType::kFloat32, Layout::kOddStart);
    backend().unary(context, UnaryOp::kGeluTanh, y, x, 0.0);
    HostTensor in_place({2051, 4099}, DType::kFloat32);
    std::memcpy(in_place.view().data, x.view().data, x.view().bytes());
    backend().unary(context, UnaryOp::kGeluTanh, in_place, in_place, 0.0);
    EXPECT_EQ(std::memcmp(in_place.view().data, y.view().data, y.view().bytes()), 0);
    for (std::int64_t i = 0; i < x.numel(); i += 9973)
      EXPECT_NEAR(y.get(i), gelu_tanh(x.get(i)), 1e-6);
  });
}

TEST(Adam, ThreadsDoNotChangeBits) {
  HostTensor lr({1}, DType::kFloat32), step({1}, DType::kInt64);
  lr.set(0, 0.01);
  step.set(0, 1);
  std::vector<double> first;
  for (const int threads : {1, 2, 3, 7}) {
    Rng rng(2);
    const HostTensor master = random_tensor({70001}, DType::kFloat32, rng);
    const HostTensor grad = random_tensor({70001}, DType::kFloat32, rng);
    const HostTensor moment1({70001}, DType::kFloat32), moment2({70001}, DType::kFloat32);
    const std::vector<OptimizerTensor> tensors{{master, grad, moment1, moment2, {}, 0.1f}};
    KernelContext context;
    context.threads = {threads};
    backend().adam_step(context, tensors, {.lr = lr, .step = step}, {});
    if (threads == 1) first = master.values();
    EXPECT_EQ(master.values(), first) << threads;
  }
}

}  // namespace
}  // namespace meshloom::kernels::test
