// SPDX-License-Identifier: Apache-2.0
// The row sums of grad_o * o, which attention_backward takes where it reads them.
#include "tests/support/test_tensor.h"

namespace meshloom::kernels::test {
namespace {

// What a library computes for itself need not be given: the gradients are the same without it.
TEST(AttentionDelta, IsLeftOutWhereItIsNotRead) {
  std::mt19937 random(5);
  const Shape shape{2, 3, 17, 16};
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const TestTensor q(dtype, shape), k(dtype, shape), v(dtype, shape), grad_o(dtype, shape);
    for (const TestTensor* t : {&q, &k, &v, &grad_o}) t->fill_random(random);
    AttentionOptions options;
    options.is_causal = true;
    const AttentionInputs in{q, k, v};
    for_all_settings([&](const KernelContext& context) {
      const TestTensor o(dtype, shape), lse({2, 3, 17}, DType::kFloat32);
      const TestTensor delta({2, 3, 17}, DType::kFloat32);
      backend().attention(context, {o, lse, false}, in, options);
      backend().attention_delta(context, delta, grad_o, o);
      std::vector<std::vector<double>> all;
      for (const bool given : {true, false}) {
        const TestTensor dq(dtype, shape), dk(dtype, shape), dv(dtype, shape);
        AttentionGrads grads{grad_o, lse, {}, dq, dk, dv, false, {}, o};
        if (given || backend().reads_attention_delta(grads, in, options)) grads.delta = delta;
        backend().attention_backward(context, grads, in, options);
        for (const TestTensor* t : {&dq, &dk, &dv}) all.push_back(t->values());
      }
      for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(all[i], all[i + 3]) << i;
    });
  }
}

// Gradients that are added up over blocks of keys belong to a delta of all of them.
TEST(AttentionDelta, IsReadWhereBlocksAddUp) {
  const TestTensor x = zeros({1, 2, 8, 16}, DType::kBFloat16);
  const TestTensor sums = zeros({1, 2, 8, 16}, DType::kFloat32);
  const TestTensor lse = zeros({1, 2, 8}, DType::kFloat32);
  const AttentionGrads grads{x, lse, {}, sums, sums, sums, true, {}, x};
  EXPECT_TRUE(backend().reads_attention_delta(grads, {x, x, x}, {}));
}

}  // namespace
}  // namespace meshloom::kernels::test
