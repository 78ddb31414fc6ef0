// SPDX-License-Identifier: Apache-2.0
#include "tests/support/test_tensor.h"

namespace meshloom::kernels::test {
namespace {

const std::vector<BinaryOp> kOps{BinaryOp::kAdd, BinaryOp::kSub, BinaryOp::kMul, BinaryOp::kDiv};

double apply(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd: return a + b;
    case BinaryOp::kSub: return a - b;
    case BinaryOp::kMul: return a * b;
    case BinaryOp::kDiv: return a / b;
  }
  return 0.0;
}

// The view with a stride of 0 in `dim`.
TensorView expanded(const TestTensor& tensor, int dim, std::int64_t size) {
  TensorView view = tensor.view();
  view.shape[dim] = size;
  view.strides[dim] = 0;
  return view;
}

TEST(Binary, EveryDTypeAndLayout) {
  Rng rng(1);
  for (const DType dtype : kFloatDTypes) {
    for (const BinaryOp op : kOps) {
      for (const Layout layout : kAllLayouts) {
        const TestTensor a = random_tensor({4, 5, 33}, dtype, rng, 0.5, 2.0, layout);
        const TestTensor b = random_tensor({4, 5, 33}, dtype, rng, 0.5, 2.0);
        std::vector<double> expected(a.numel());
        for (std::int64_t i = 0; i < a.numel(); ++i) expected[i] = apply(op, a.at(i), b.at(i));
        for_all_settings([&](const KernelContext& context) {
          TestTensor y({4, 5, 33}, dtype, layout);
          backend().binary(context, op, y, a, b);
          expect_close(y.values(), expected, tolerance(dtype));
        });
      }
    }
  }
}

TEST(Binary, BroadcastOverRowsColumnsAndEverything) {
  Rng rng(2);
  const TestTensor a = random_tensor({31, 45}, DType::kFloat32, rng, 0.5, 2.0);
  const TestTensor row = random_tensor({1, 45}, DType::kFloat32, rng, 0.5, 2.0);
  const TestTensor column = random_tensor({31, 1}, DType::kFloat32, rng, 0.5, 2.0);
  const TestTensor one = random_tensor({1, 1}, DType::kFloat32, rng, 0.5, 2.0);
  const TensorView rows = expanded(row, 0, 31);
  const TensorView columns = expanded(column, 1, 45);
  TensorView all = expanded(one, 0, 31);
  all.shape[1] = 45;
  all.strides[1] = 0;
  for (const BinaryOp op : kOps) {
    for_all_settings([&](const KernelContext& context) {
      TestTensor y({31, 45}, DType::kFloat32);
      backend().binary(context, op, y, a, rows);
      for (int i = 0; i < 31 * 45; ++i)
        ASSERT_FLOAT_EQ(y.at(i), apply(op, a.at(i), row.at(i % 45)));
      backend().binary(context, op, y, columns, a);
      for (int i = 0; i < 31 * 45; ++i)
        ASSERT_FLOAT_EQ(y.at(i), apply(op, column.at(i / 45), a.at(i)));
      backend().binary(context, op, y, all, columns);
      for (int i = 0; i < 31 * 45; ++i)
        ASSERT_FLOAT_EQ(y.at(i), apply(op, one.at(0), column.at(i / 45)));
    });
  }
}

TEST(Binary, InPlace) {
  Rng rng(3);
  const TestTensor a = random_tensor({1000}, DType::kFloat32, rng);
  for_all_settings([&](const KernelContext& context) {
    TestTensor y({1000}, DType::kFloat32);
    backend().copy(context, y, a);
    backend().binary(context, BinaryOp::kAdd, y, y, a);
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(y.at(i), 2 * a.at(i));
  });
}

TEST(Binary, MixedDTypes) {
  Rng rng(4);
  const TestTensor a = random_tensor({700}, DType::kFloat32, rng);
  const TestTensor b = random_tensor({700}, DType::kBFloat16, rng);
  TestTensor y({700}, DType::kFloat32);
  backend().binary(test_context(), BinaryOp::kMul, y, a, b);
  for (int i = 0; i < 700; ++i) ASSERT_FLOAT_EQ(y.at(i), a.at(i) * b.at(i));
}

TEST(Binary, IntegersAreExact) {
  const TestTensor a = tensor_of({0, 7}, DType::kInt64), b = tensor_of({3, 0}, DType::kInt64);
  a.set_int64(0, (std::int64_t{1} << 60) + 1);
  TestTensor y({2}, DType::kInt64);
  backend().binary(test_context(), BinaryOp::kAdd, y, a, b);
  EXPECT_EQ(y.int64_at(0), (std::int64_t{1} << 60) + 4);
  backend().binary(test_context(), BinaryOp::kDiv, y, a, b);
  EXPECT_EQ(y.int64_at(0), ((std::int64_t{1} << 60) + 1) / 3);
  EXPECT_EQ(y.int64_at(1), 0);
}

TEST(Where, EveryDType) {
  Rng rng(5);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat64, DType::kInt64,
                            DType::kInt32, DType::kUInt8}) {
    const TestTensor condition = random_ids({13, 1}, 2, rng);
    const TestTensor mask({13, 1}, DType::kBool);
    for (std::int64_t i = 0; i < 13; ++i) mask.set(i, condition.at(i));
    const TestTensor a = random_tensor({13, 17}, dtype, rng, 0.0, 50.0);
    const TestTensor b = random_tensor({13, 17}, dtype, rng, 0.0, 50.0, Layout::kPermuted);
    for_all_settings([&](const KernelContext& context) {
      TestTensor y({13, 17}, dtype);
      backend().where(context, y, expanded(mask, 1, 17), a, b);
      for (int i = 0; i < 13 * 17; ++i)
        ASSERT_EQ(y.at(i), mask.at(i / 17) != 0 ? a.at(i) : b.at(i));
    });
  }
}

TEST(Triangle, EveryDiagonal) {
  Rng rng(6);
  const TestTensor x =
      random_tensor({2, 3, 7, 11}, DType::kFloat32, rng, 1.0, 2.0, Layout::kPermuted);
  for (const bool upper : {false, true}) {
    for (std::int64_t diagonal = -8; diagonal <= 12; ++diagonal) {
      TestTensor y({2, 3, 7, 11}, DType::kFloat32);
      backend().triangle(test_context(), y, x, upper, diagonal);
      for (int i = 0; i < x.numel(); ++i) {
        const int distance = i % 11 - i / 11 % 7;
        const bool kept = upper ? distance >= diagonal : distance <= diagonal;
        ASSERT_EQ(y.at(i), kept ? x.at(i) : 0.0);
      }
    }
  }
}

TEST(Swiglu, ForwardAndBackward) {
  Rng rng(7);
  for (const DType dtype : kFloatDTypes) {
    for (const Layout layout : {Layout::kDense, Layout::kPadded, Layout::kPermuted}) {
      const TestTensor gate = random_tensor({9, 77}, dtype, rng, -6.0, 6.0, layout);
      const TestTensor up = random_tensor({9, 77}, dtype, rng, -2.0, 2.0, layout);
      const TestTensor dy = random_tensor({9, 77}, dtype, rng);
      std::vector<double> y_expected, dgate_expected, dup_expected;
      for (int i = 0; i < 9 * 77; ++i) {
        const double s = 1.0 / (1.0 + std::exp(-gate.at(i)));
        y_expected.push_back(gate.at(i) * s * up.at(i));
        dup_expected.push_back(dy.at(i) * gate.at(i) * s);
        dgate_expected.push_back(dy.at(i) * up.at(i) * (s + gate.at(i) * s * (1 - s)));
      }
      for_all_settings([&](const KernelContext& context) {
        TestTensor y({9, 77}, dtype);
        TestTensor dgate({9, 77}, dtype);
        TestTensor dup({9, 77}, dtype);
        backend().swiglu(context, y, gate, up);
        backend().swiglu_backward(context, dgate, dup, dy, gate, up);
        expect_close(y.values(), y_expected, tolerance(dtype));
        expect_close(dgate.values(), dgate_expected, tolerance(dtype));
        expect_close(dup.values(), dup_expected, tolerance(dtype));
      });
    }
  }
}

}  // namespace
}  // namespace meshloom::kernels::test
