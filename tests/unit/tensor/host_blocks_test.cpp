// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/host_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "daemon/tensor/ops/shape.h"
#include "daemon/tensor/tensor.h"
#include "tests/support/fenced_device/fenced_device.h"

namespace meshloom {
namespace {

ExecutionContext::Options blocks_on_fenced_device() {
  ExecutionContext::Options options;
  options.device = {DeviceKind::kCuda, 0};
  options.backend = &testing::fenced_device(0);
  return options;
}

/// On the CPU, and on a device that copies while the host goes on.
class HostBlocksTest : public ::testing::TestWithParam<bool> {
 protected:
  /// Numbers that bfloat16 has too.
  static float value_at(std::int64_t i) { return static_cast<float>(i % 251 - 100); }
  /// Writes the values from number `first` on.
  static auto values_from(std::int64_t first) {
    return [first](std::span<std::byte> out) {
      auto* const values = reinterpret_cast<float*>(out.data());
      for (std::size_t i = 0; i < out.size() / sizeof(float); ++i)
        values[i] = value_at(first + static_cast<std::int64_t>(i));
    };
  }
  /// Copies a block to a place, converting it.
  auto put(const TensorView& to) {
    return [this, to](const TensorView& block) {
      EXPECT_EQ(block.device, context_.device());
      context_.backend().copy(context_.kernel_context(), to, block);
    };
  }
  static void expect_values(const Tensor& x) {
    const std::vector<double> found = x.to_vector();
    for (std::size_t i = 0; i < found.size(); ++i)
      ASSERT_EQ(found[i], value_at(static_cast<std::int64_t>(i))) << i;
  }

  ExecutionContext context_{GetParam() ? blocks_on_fenced_device() : ExecutionContext::Options()};
};

INSTANTIATE_TEST_SUITE_P(Devices, HostBlocksTest, ::testing::Bool(), [](const auto& test) {
  return std::string(test.param ? "fenced" : "cpu");
});

TEST_P(HostBlocksTest, OfAnySizesArriveWhereTheyBelong) {
  const std::vector<std::int64_t> sizes{3, 70'000, 1, 0, 70'001, 12, 300'000, 5, 300'001};
  std::int64_t total = 0;
  for (const std::int64_t size : sizes) total += size;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat64}) {
    const Tensor all = empty(context_, {total}, dtype);
    HostBlocks blocks(context_);
    std::int64_t at = 0;
    for (const std::int64_t size : sizes) {
      const TensorView place = rows_of(all.view(), at, size);
      blocks.to_device(DType::kFloat32, {size}, values_from(at), [&](const TensorView& block) {
        EXPECT_EQ(block.shape, Shape({size}));
        if (size > 0) put(place)(block);
      });
      at += size;
    }
    expect_values(all);
  }
}

TEST_P(HostBlocksTest, AreCopiedToAnyStrides) {
  // Columns of a matrix that lies transposed, some rows at a time.
  const Tensor memory = empty(context_, {7, 1000}, DType::kFloat32);
  const Tensor columns = ops::transpose(memory, 0, 1);
  HostBlocks blocks(context_);
  for (std::int64_t row = 0; row < 1000; row += 90) {
    const std::int64_t rows = std::min<std::int64_t>(90, 1000 - row);
    blocks.to_device(DType::kFloat32, {rows, 7}, values_from(row * 7),
                     put(rows_of(columns.view(), row, rows)));
  }
  expect_values(columns);
}

TEST_P(HostBlocksTest, AnErrorLeavesNoCopyInFlight) {
  const Tensor all = empty(context_, {6, 1000}, DType::kFloat32);
  const auto row = [&](std::int64_t i) { return rows_of(all.view(), i, 1); };
  const auto fail = [](auto) { throw std::runtime_error("no more"); };
  {
    HostBlocks blocks(context_);
    for (const std::int64_t i : {0, 1})
      blocks.to_device(DType::kFloat32, {1, 1000}, values_from(i * 1000), put(row(i)));
    EXPECT_THROW(blocks.to_device(DType::kFloat32, {1, 1000}, fail, put(row(5))),
                 std::runtime_error);
    EXPECT_THROW(blocks.to_device(DType::kFloat32, {1, 1000}, values_from(7), fail),
                 std::runtime_error);
    for (const std::int64_t i : {2, 3, 4})
      blocks.to_device(DType::kFloat32, {1, 1000}, values_from(i * 1000), put(row(i)));
    EXPECT_THROW(blocks.to_device(DType::kFloat32, {1, 1000}, fail, put(row(5))),
                 std::runtime_error);
  }
  // Whoever gets the memory next may write to it.
  for (int i = 0; i < 4; ++i) {
    const auto memory = context_.allocator(MemoryKind::kHost).allocate(4000);
    std::fill_n(memory->data(), 4000, std::byte{0x55});
  }
  expect_values(ops::slice(all, 0, 0, 5));
}

TEST(HostBlocks, WaitOnlyForTheBlockBeforeTheLastOne) {
  ExecutionContext context(blocks_on_fenced_device());
  testing::FencedBackend& device = testing::fenced_device(0);
  device.reset_counts();
  {
    HostBlocks blocks(context);
    const auto bring = [&] {
      blocks.to_device(
          DType::kUInt8, {100},
          [](std::span<std::byte> out) { std::ranges::fill(out, std::byte{1}); },
          [](const TensorView&) {});
    };
    bring();
    bring();
    EXPECT_EQ(device.counts().waits, 0);
    bring();
    EXPECT_LE(device.counts().waits, 1);
    EXPECT_EQ(device.counts().copies_from_host, 3);
  }
  EXPECT_LE(device.counts().waits, 3);
}

}  // namespace
}  // namespace meshloom
