// SPDX-License-Identifier: Apache-2.0
// Ten faults of code above the kernels, each planted beside its clean twin: the fenced device finds
// the fault, and the twin passes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "daemon/comm/staging/pinned_memory.h"
#include "daemon/tensor/autograd/backward.h"
#include "daemon/tensor/host_pieces.h"
#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/reduce.h"
#include "kernels/base/error.h"
#include "tests/support/device_ranks.h"
#include "tests/support/fenced_device/fence_guard.h"

namespace meshloom {
namespace {

using ::testing::ExitedWithCode;
using ::testing::HasSubstr;

class PlantedFaults : public ::testing::Test {
 protected:
  PlantedFaults() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  kernels::Backend& backend() { return context_.backend(); }
  const kernels::KernelContext& kernel() { return context_.kernel_context(); }
  Tensor parameter() {
    Tensor x = full(context_, {4}, 3.0, DType::kFloat32);
    x.set_requires_grad(true);
    return x;
  }
  /// What `call` throws, and nothing where it does not.
  template <typename Call>
  static std::string error_of(const Call& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  }

  ExecutionContext context_{testing::on_device(testing::fenced_group_device(0))};
};

TEST_F(PlantedFaults, AHostReadOfAParameter) {
  const Tensor x = parameter();
  EXPECT_EQ(x.detach().to_vector(), std::vector<double>(4, 3.0));
  EXPECT_EXIT(
      {
        const volatile float value = *x.detach().data<float>();
        std::exit(value > 0 ? 0 : 1);
      },
      ExitedWithCode(testing::kFenceExitStatus), "only the device may touch");
}

TEST_F(PlantedFaults, AHostReadOfALossBeforeItsEvent) {
  const Tensor loss = ops::sum(parameter().detach());
  const auto memory = context_.allocator(MemoryKind::kHost).allocate(sizeof(float));
  const auto* const value = reinterpret_cast<const float*>(memory->data());
  const auto arrived = backend().make_event();
  backend().copy_to_host_async(kernel(), make_view(memory->data(), DType::kFloat32, loss.shape()),
                               loss.view());
  arrived->record(kernel().stream);
  EXPECT_TRUE(std::isnan(*value)) << "read too early";
  arrived->wait();
  EXPECT_EQ(*value, 12.0f);
}

TEST_F(PlantedFaults, APinnedBufferReadTooEarly) {
  const Tensor x = full(context_, {5}, 2.0, DType::kBFloat16);
  // The clean twin: it waits for each piece.
  HostPieces(context_).read(x.view(), DType::kFloat32, [](std::span<const std::byte> piece) {
    ASSERT_EQ(piece.size(), 5 * sizeof(float));
    EXPECT_EQ(*reinterpret_cast<const float*>(piece.data()), 2.0f);
  });
  const auto memory = context_.allocator(MemoryKind::kHost).allocate(5 * sizeof(float));
  backend().copy_to_host_async(kernel(), make_view(memory->data(), DType::kFloat32, {5}), x.view());
  EXPECT_TRUE(std::isnan(*reinterpret_cast<const float*>(memory->data())));
}

TEST_F(PlantedFaults, AHostWriteIntoAGradient) {
  const Tensor x = parameter();
  const Tensor y = ops::sum(ops::mul(x, 2.0));
  autograd::backward(y);
  EXPECT_EQ(x.grad().to_vector(), std::vector<double>(4, 2.0));
  EXPECT_EXIT(
      {
        *x.grad().data<float>() = 0.0f;
        std::exit(0);
      },
      ExitedWithCode(testing::kFenceExitStatus), "only the device may touch");
}

TEST_F(PlantedFaults, AHostViewInACopy) {
  const Tensor x = parameter().detach();
  std::vector<float> host(4, 1.0f);
  const TensorView view = make_view(host.data(), DType::kFloat32, {4});
  EXPECT_THAT(error_of([&] { backend().copy(kernel(), x.view(), view); }),
              HasSubstr("host memory"));
  backend().copy_from_host(kernel(), x.view(), view);
  EXPECT_EQ(x.to_vector(), std::vector<double>(4, 1.0));
}

TEST_F(PlantedFaults, ABufferThatIsFreedAndUsedAgainUnderStaging) {
  const Tensor x = parameter().detach();
  const comm::GroupDevice device{context_.device(), &backend(), context_.options().stream};
  comm::PinnedMemory memory(device, {});
  const auto fill = [](const comm::PinnedMemory::Block& block, float value) {
    std::fill_n(reinterpret_cast<float*>(block.data), 4, value);
  };
  const auto copy_back = [&](const comm::PinnedMemory::Block& block) {
    backend().copy_from_host_async(kernel(), x.view(), make_view(block.data, DType::kFloat32, {4}));
  };
  // The clean twin gives the block back: the next call gets another one until the copy has come.
  const comm::PinnedMemory::Block first = memory.take(16);
  fill(first, 5.0f);
  copy_back(first);
  memory.give_back(first);
  const comm::PinnedMemory::Block second = memory.take(16);
  EXPECT_NE(second.data, first.data);
  fill(second, 6.0f);
  EXPECT_EQ(x.to_vector(), std::vector<double>(4, 5.0));
  memory.give_back(memory.mark(), true);
  EXPECT_EQ(memory.take(16).data, first.data);
  // The fault uses it at once.
  copy_back(second);
  fill(second, 7.0f);
  EXPECT_THAT(error_of([&] { x.to_vector(); }), HasSubstr("was written before the copy"));
}

TEST_F(PlantedFaults, AMissingEventBetweenTwoStreams) {
  const Tensor x = parameter().detach();
  const auto other = backend().make_stream(context_.device());
  kernels::KernelContext second = kernel();
  second.stream = other->get();
  const auto scale = [&](const kernels::KernelContext& context) {
    backend().unary(context, kernels::UnaryOp::kMul, x.view(), x.view(), 2.0);
  };
  scale(kernel());
  const auto mark = backend().make_event();
  mark->record(kernel().stream);
  backend().wait_event(second.stream, *mark);
  scale(second);
  EXPECT_THAT(error_of([&] { scale(kernel()); }), HasSubstr("stream"));
  std::vector<float> values(4);
  backend().copy_to_host(second, make_view(values.data(), DType::kFloat32, {4}), x.view());
  EXPECT_EQ(values, std::vector<float>(4, 12.0f));
}

TEST_F(PlantedFaults, MemoryUsedAfterItsRelease) {
  Tensor x = full(context_, {4}, 1.0, DType::kFloat32);
  const TensorView view = x.view();
  backend().fill(kernel(), view, 2.0);
  EXPECT_EQ(x.to_vector(), std::vector<double>(4, 2.0));
  x = {};
  context_.allocator().trim();
  EXPECT_THAT(error_of([&] { backend().fill(kernel(), view, 3.0); }), HasSubstr("released"));
}

TEST_F(PlantedFaults, AHostValueGivenAsADeviceView) {
  const Tensor x = parameter().detach();
  std::vector<float> host(4, 1.0f);
  const TensorView lie = make_view(host.data(), DType::kFloat32, {4}, context_.device());
  EXPECT_THAT(error_of([&] {
                backend().binary(kernel(), kernels::BinaryOp::kAdd, x.view(), x.view(), lie);
              }),
              HasSubstr("not the device's"));
  backend().binary(kernel(), kernels::BinaryOp::kAdd, x.view(), x.view(), x.view());
  EXPECT_EQ(x.to_vector(), std::vector<double>(4, 6.0));
}

TEST_F(PlantedFaults, ADeviceViewInAGroupOfAnotherDevice) {
  const Tensor x = parameter().detach();
  comm::GroupOptions options;
  options.device = testing::fenced_group_device(1);
  const auto other = comm::make_single_process_group(options);
  EXPECT_THAT(error_of([&] { other->all_reduce(x.view(), comm::ReduceOp::kSum); }),
              HasSubstr("data is in the memory of cuda:0, this group takes host memory or that of "
                        "cuda:1"));
  options.device = testing::fenced_group_device(0);
  comm::make_single_process_group(options)->all_reduce(x.view(), comm::ReduceOp::kSum)->wait_host();
  EXPECT_EQ(x.to_vector(), std::vector<double>(4, 3.0));
}

}  // namespace
}  // namespace meshloom
