// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/tensor.h"

#include <gtest/gtest.h>

#include <numeric>

#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/heap_source.h"
#include "tests/support/test_context.h"

namespace meshloom {
namespace {

class TensorTest : public ::testing::Test {
 protected:
  testing::TestContext context_;
};

TEST_F(TensorTest, FactoriesGiveShapeDtypeAndValues) {
  const Tensor f = full(context_, {2, 3}, 1.5, DType::kBFloat16);
  EXPECT_EQ(f.dtype(), DType::kBFloat16);
  EXPECT_EQ(f.to_vector(), std::vector<double>(6, 1.5));
  EXPECT_EQ(zeros(context_, {0, 4}, DType::kFloat32).numel(), 0);
  EXPECT_EQ(full(context_, {}, 7.0, DType::kInt64).item(), 7.0);
  const std::vector<float> values{1, 2, 3, 4};
  EXPECT_EQ(from_values(context_, {2, 2}, values).to_vector(), (std::vector<double>{1, 2, 3, 4}));
  EXPECT_THROW(from_values(context_, {3}, values), InvalidArgument);
  // 2^64 bytes.
  EXPECT_THROW(empty(context_, {std::int64_t{1} << 61}, DType::kFloat64), InvalidArgument);
}

TEST_F(TensorTest, ViewsOfTransposedTensorsReadInOrder) {
  std::vector<float> values(6);
  std::iota(values.begin(), values.end(), 0.0f);
  const Tensor t = ops::transpose(from_values(context_, {2, 3}, values), 0, 1);
  EXPECT_FALSE(t.contiguous());
  EXPECT_EQ(t.to_vector(), (std::vector<double>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(ops::slice(t, 0, 1, 2).storage_offset(), 1);
}

TEST_F(TensorTest, LeavesAndGradients) {
  Tensor x = full(context_, {2}, 3.0, DType::kFloat32);
  EXPECT_FALSE(x.requires_grad());
  x.set_requires_grad(true);
  EXPECT_TRUE(x.is_leaf());
  EXPECT_FALSE(x.grad().defined());
  Tensor y = ops::mul(x, 2.0);
  EXPECT_TRUE(y.requires_grad());
  EXPECT_FALSE(y.is_leaf());
  EXPECT_FALSE(y.detach().requires_grad());
  EXPECT_EQ(y.detach().storage(), y.storage());
  EXPECT_THROW(y.set_requires_grad(true), FailedPrecondition);
  EXPECT_THROW(zeros(context_, {2}, DType::kInt64).set_requires_grad(true), InvalidArgument);
}

TEST_F(TensorTest, NoGradGuardRecordsNothing) {
  Tensor x = full(context_, {2}, 3.0, DType::kFloat32);
  x.set_requires_grad(true);
  const NoGradGuard guard(context_);
  EXPECT_FALSE(ops::mul(x, 2.0).requires_grad());
}

TEST_F(TensorTest, ExternalMemoryIsSharedNotCopied) {
  struct Floats : MemoryOwner {
    std::vector<float> values = std::vector<float>(4, 1.0f);
  };
  ExecutionContext context;
  const auto owner = std::make_shared<Floats>();
  Tensor t = from_external(context, make_view(owner->values.data(), DType::kFloat32, {4}), owner);
  owner->values[2] = 9.0f;
  EXPECT_EQ(t.to_vector()[2], 9.0);
  EXPECT_EQ(owner.use_count(), 2);
  t = Tensor();
  EXPECT_EQ(owner.use_count(), 1);
}

TEST_F(TensorTest, CopyIntoConvertsAndChecksShapes) {
  const Tensor dst = zeros(context_, {2, 2}, DType::kBFloat16);
  copy_into(dst, full(context_, {2, 2}, 1.0039, DType::kFloat32));
  EXPECT_EQ(dst.to_vector()[0], 1.0);
  EXPECT_THROW(copy_into(dst, zeros(context_, {4}, DType::kFloat32)), InvalidArgument);
}

TEST_F(TensorTest, ItemWantsOneElementAndUseOfNothingIsAnError) {
  EXPECT_THROW(zeros(context_, {2}, DType::kFloat32).item(), InvalidArgument);
  EXPECT_THROW(Tensor().dtype(), InternalError);
  EXPECT_FALSE(Tensor().view().defined());
}

TEST_F(TensorTest, AllocatorMustBeOfTheDevice) {
  ExecutionContext::Options options;
  options.allocator = Allocator::create(kernels::cpu::make_heap_source());
  options.device = {DeviceKind::kCuda, 0};
  options.backend = &kernels::cpu::cpu_backend();
  EXPECT_THROW(ExecutionContext{options}, InvalidArgument);
}

TEST_F(TensorTest, TheEndOfAContextGivesItsMemoryBack) {
  ExecutionContext::Options options;
  options.allocator = Allocator::create(kernels::cpu::make_heap_source());
  {
    ExecutionContext run(options);
    run.kernel_context().workspace->reserve(1 << 20);
    full(run, {1 << 20}, 1.0, DType::kFloat32);
    EXPECT_GT(options.allocator->stats().segment_bytes, 0u);
  }
  EXPECT_EQ(options.allocator->stats().segment_bytes, 0u);
}

TEST_F(TensorTest, WorkspaceGrowsAndStays) {
  auto& workspace = *context_.kernel_context().workspace;
  EXPECT_GE(workspace.reserve(1000).size(), 1000u);
  const auto* large = workspace.reserve(100000).data();
  EXPECT_EQ(workspace.reserve(500).data(), large);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(large) % 64, 0u);
}

}  // namespace
}  // namespace meshloom
