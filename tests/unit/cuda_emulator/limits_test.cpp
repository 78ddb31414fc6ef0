// SPDX-License-Identifier: Apache-2.0
// Where the CUDA backend ends: what it refuses by name, indices on both sides of 2^31, and lists
// that are longer than a kernel's arguments.
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/base/error.h"
#include "tests/support/test_tensor.h"

namespace meshloom::kernels::test {
namespace {

/// What a call refuses, or "" where it does not.
template <class Call>
std::string refusal(Call&& call) {
  try {
    call();
  } catch (const Unimplemented& error) {
    return error.what();
  }
  return "";
}

struct Heads {
  TestTensor q, k, v, o, lse;

  Heads(std::int64_t dims, std::int64_t dims_v, DType dtype)
      : q({1, 1, 3, dims}, dtype),
        k({1, 1, 3, dims}, dtype),
        v({1, 1, 3, dims_v}, dtype),
        o({1, 1, 3, dims_v}, dtype),
        lse({1, 1, 3}, DType::kFloat32) {}

  std::string forward() const {
    return refusal([&] { backend().attention(test_context(), {o, lse}, {q, k, v}, {}); });
  }
  std::string backward() const {
    const Heads d(q.shape()[3], v.shape()[3], q.dtype());
    return refusal([&] {
      backend().attention_backward(test_context(), {o, lse, lse, d.q, d.k, d.v}, {q, k, v}, {});
    });
  }
};

TEST(CudaLimits, HeadsOfMoreThan256DimsAreRefusedByName) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    EXPECT_EQ(Heads(256, 256, dtype).forward(), "");
    for (const Heads& wide : {Heads(257, 64, dtype), Heads(64, 257, dtype)}) {
      const std::string expected =
          "attention with heads of 257 dims, more than 256, is not built yet on cuda";
      EXPECT_EQ(wide.forward(), expected);
      EXPECT_EQ(wide.backward(), expected);
    }
  }
  const TestTensor q({1, 1, 1, 264}, DType::kFloat32), lse({1, 1, 1}, DType::kFloat32);
  const TestTensor keys({1, 1, 5, 264}, DType::kFloat32);
  const std::vector<AttentionMemory> memories{{keys, keys}};
  EXPECT_EQ(refusal([&] {
              backend().attention_rows(test_context(), {q, lse}, q, memories, 0.0);
            }),
            "attention with heads of 264 dims, more than 256, is not built yet on cuda");
}

TEST(CudaLimits, DTypesThatNothingComputesInAreRefusedByName) {
  EXPECT_EQ(Heads(16, 16, DType::kFloat8E4M3).forward(),
            "attention of float8_e4m3 is not built yet on cuda");
  EXPECT_EQ(Heads(16, 16, DType::kInt64).forward(), "attention of int64 is not built yet on cuda");
  const TestTensor integers({4, 4}, DType::kInt32), bytes({4, 4}, DType::kFloat8E5M2);
  const KernelContext context = test_context();
  EXPECT_EQ(refusal([&] { backend().matmul(context, integers, integers, integers, {}); }),
            "matmul of int32 is not built yet on cuda");
  EXPECT_EQ(refusal([&] { backend().unary(context, UnaryOp::kExp, bytes, bytes, 0.0); }),
            "unary of float8_e5m2 is not built yet on cuda");
  EXPECT_EQ(refusal([&] { backend().softmax(context, integers, integers, false); }),
            "softmax of int32 is not built yet on cuda");
  EXPECT_EQ(
      refusal([&] {
        backend().cross_entropy(context, {integers, TestTensor({4}, DType::kInt64), {}, {}}, {});
      }),
      "cross_entropy of int32 is not built yet on cuda");
}

/// Memory of more than 2^31 bytes; what nobody touches takes none.
class FarMemory : public ::testing::Test {
 protected:
  static constexpr std::int64_t kFar = (std::int64_t{1} << 31) + 4096;
  static constexpr std::int64_t kColumns = 48;

  /// Two rows, `stride` bytes apart, whose elements are set one by one.
  TensorView far_rows(std::int64_t stride, std::int64_t offset = 0) const {
    TensorView view = make_view(memory_->data() + offset, DType::kUInt8, {2, kColumns},
                                meshloom::testing::test_device());
    view.strides = {stride, 1};
    return view;
  }
  static TestTensor counted(double first) {
    TestTensor rows({2, kColumns}, DType::kUInt8);
    for (std::int64_t i = 0; i < rows.numel(); ++i) rows.set(i, first + static_cast<double>(i));
    return rows;
  }
  static std::vector<double> read(const TensorView& view) {
    const TestTensor rows({2, kColumns}, DType::kUInt8);
    backend().copy(test_context(), rows, view);
    return rows.values();
  }

  std::shared_ptr<Storage> memory_ = allocate_on_device(static_cast<std::size_t>(kFar) + 8192);
};

TEST_F(FarMemory, IndicesOnBothSidesOfTwoToTheThirtyFirst) {
  const KernelContext context = test_context();
  for (const std::int64_t stride : {kFar - 8192, kFar}) {
    const TensorView rows = far_rows(stride);
    const TestTensor first = counted(1), second = counted(100);
    backend().copy(context, rows, first);
    EXPECT_EQ(read(rows), first.values());
    backend().binary(context, BinaryOp::kAdd, rows, rows, second);
    for (std::int64_t i = 0; i < first.numel(); ++i)
      ASSERT_EQ(read(rows)[static_cast<std::size_t>(i)],
                static_cast<std::uint8_t>(first.at(i) + second.at(i)));
    const TestTensor condition({2, kColumns}, DType::kBool);
    condition.fill(1.0);
    backend().where(context, far_rows(stride, 256), condition, rows, rows);
    EXPECT_EQ(read(far_rows(stride, 256)), read(rows));
    backend().fill(context, rows, 7.0);
    EXPECT_EQ(read(rows), std::vector<double>(2 * kColumns, 7.0));
    // A table whose rows lie far apart.
    backend().copy(context, rows, first);
    const TestTensor ids({2}, DType::kInt64), y({2, kColumns}, DType::kUInt8);
    ids.set(0, 1);
    ids.set(1, 0);
    backend().embedding(context, y, rows, ids);
    for (std::int64_t i = 0; i < y.numel(); ++i)
      ASSERT_EQ(y.at(i), first.at((i + kColumns) % (2 * kColumns)));
  }
}

// Bytes beyond 2^31 of bfloat16: heads of a call lie as far apart.
TEST_F(FarMemory, HeadsThatLieFarApart) {
  Rng rng(3);
  const TestTensor near = random_tensor({1, 2, 5, 16}, DType::kBFloat16, rng);
  TensorView far =
      make_view(memory_->data(), DType::kBFloat16, {1, 2, 5, 16}, meshloom::testing::test_device());
  far.strides = {kFar / 2, kFar / 2, 16, 1};
  const KernelContext context = test_context();
  backend().copy(context, far, near);
  // A bias, so that the own kernels compute it.
  const TestTensor bias = zeros({1, 2, 5, 5}, DType::kFloat32);
  AttentionOptions options;
  options.bias = bias;
  const auto attend = [&](const TensorView& x) {
    const TestTensor o({1, 2, 5, 16}, DType::kBFloat16), lse({1, 2, 5}, DType::kFloat32);
    backend().attention(context, {o, lse}, {x, x, x}, options);
    return o.values();
  };
  EXPECT_EQ(attend(far), attend(near));
}

// A kernel takes about 32 KB of arguments: 700 parameters, views or memories are several launches.
TEST(CudaLimits, ListsLongerThanAKernelsArgumentsAreSplit) {
  constexpr int kCount = 1500;
  Rng rng(4);
  const KernelContext context = test_context();
  const TestTensor x = random_tensor({kCount, 3}, DType::kFloat32, rng);
  const TestTensor sum({1}, DType::kFloat32), index({1}, DType::kInt64);
  std::vector<TensorView> views;
  double expected = 0.0;
  for (std::int64_t i = 0; i < kCount; ++i) views.push_back(rows_of(x, i, 1));
  for (const double value : x.values()) expected += value * value;
  backend().sum_of_squares(context, sum, views, false);
  EXPECT_NEAR(sum.at(0), expected, 1e-4 * expected);
  backend().fill(context, views[kCount - 2], std::numeric_limits<double>::infinity());
  backend().first_nonfinite(context, index, views);
  EXPECT_EQ(index.int64_at(0), kCount - 2);

  const TestTensor master = random_tensor({kCount, 3}, DType::kFloat32, rng), lr = tensor_of({0.5});
  const TestTensor grad = random_tensor({kCount, 3}, DType::kFloat32, rng);
  const std::vector<double> before = master.values();
  const TestTensor step({1}, DType::kInt64);
  step.set(0, 1);
  std::vector<OptimizerTensor> tensors;
  for (std::int64_t i = 0; i < kCount; ++i)
    tensors.push_back({rows_of(master, i, 1), rows_of(grad, i, 1), {}, {}, {}});
  backend().sgd_step(context, tensors, {.lr = lr, .step = step}, {});
  for (std::int64_t i = 0; i < master.numel(); ++i)
    ASSERT_NEAR(master.at(i), before[static_cast<std::size_t>(i)] - 0.5 * grad.at(i), 1e-5);

  constexpr std::int64_t kRows = 70, kKeys = 3, kDims = 8;
  const TestTensor q = random_tensor({kRows, 1, 1, kDims}, DType::kFloat32, rng);
  const TestTensor keys = random_tensor({kRows, 1, kKeys, kDims}, DType::kFloat32, rng);
  const TestTensor o({kRows, 1, 1, kDims}, DType::kFloat32), lse({kRows, 1, 1}, DType::kFloat32);
  const TestTensor alone({1, 1, 1, kDims}, DType::kFloat32), lse_alone({1, 1, 1}, DType::kFloat32);
  std::vector<AttentionMemory> memories;
  for (std::int64_t i = 0; i < kRows; ++i)
    memories.push_back({rows_of(keys, i, 1), rows_of(keys, i, 1)});
  backend().attention_rows(context, {o, lse}, q, memories, 0.0);
  backend().attention_rows(context, {alone, lse_alone}, rows_of(q, kRows - 1, 1),
                           std::span(memories).last(1), 0.0);
  for (std::int64_t d = 0; d < kDims; ++d) EXPECT_EQ(alone.at(d), o.at((kRows - 1) * kDims + d));
}

}  // namespace
}  // namespace meshloom::kernels::test
