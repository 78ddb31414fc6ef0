// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/host_pieces.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "daemon/tensor/ops/shape.h"
#include "daemon/tensor/tensor.h"
#include "kernels/base/error.h"
#include "tests/support/fenced_device/fenced_device.h"
#include "tests/support/random_tensor.h"

namespace meshloom {
namespace {

std::vector<std::byte> read_all(const Tensor& x, DType dtype, std::size_t* pieces) {
  HostPieces host(x.context());
  std::vector<std::byte> all;
  *pieces = 0;
  host.read(x.view(), dtype, [&](std::span<const std::byte> piece) {
    ++*pieces;
    all.insert(all.end(), piece.begin(), piece.end());
  });
  return all;
}

std::vector<std::byte> bytes_of(const Tensor& x) {
  const auto* const data = x.data<std::byte>();
  return {data, data + x.view().bytes()};
}

TEST(HostPieces, GiveAllElementsInOrder) {
  ExecutionContext context;
  std::mt19937_64 rng(7);
  // Of a piece of 1 MiB: none, less than one, one, a little more, and three that share two buffers.
  for (const std::int64_t size : {0, 1, 1000, 262'144, 262'145, 700'001}) {
    const Tensor x = test::random_tensor(context, {size}, rng, DType::kFloat32);
    std::size_t pieces = 0;
    const std::vector<std::byte> same = read_all(x, DType::kFloat32, &pieces);
    ASSERT_EQ(same.size(), static_cast<std::size_t>(size) * 4);
    EXPECT_EQ(pieces, std::max<std::size_t>(1, (same.size() + (1 << 20) - 1) >> 20));
    EXPECT_TRUE(same == bytes_of(x));

    const Tensor narrow = empty(context, {size}, DType::kBFloat16);
    copy_into(narrow, x);
    const std::vector<std::byte> converted = read_all(x, DType::kBFloat16, &pieces);
    ASSERT_EQ(converted.size(), static_cast<std::size_t>(size) * 2);
    EXPECT_TRUE(converted == bytes_of(narrow));
  }
}

TEST(HostPieces, ComeFromADeviceWhileTheHostUsesThoseBefore) {
  ExecutionContext::Options options;
  options.device = {DeviceKind::kCuda, 0};
  options.backend = &testing::fenced_device(0);
  ExecutionContext cpu, device(options);
  std::mt19937_64 rng(7);
  for (const std::int64_t size : {0, 1, 262'145, 700'001}) {
    const Tensor x = test::random_tensor(cpu, {size}, rng, DType::kFloat32);
    const Tensor there =
        from_values(device, {size}, std::span(x.data<float>(), static_cast<std::size_t>(size)));
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      std::size_t pieces = 0, expected = 0;
      EXPECT_TRUE(read_all(there, dtype, &pieces) == read_all(x, dtype, &expected));
      EXPECT_EQ(pieces, expected);
    }
  }
}

TEST(HostPieces, ReadAgainAfterAnError) {
  ExecutionContext context;
  const Tensor x = full(context, {1'000'000}, 2.0, DType::kFloat32);
  HostPieces host(context);
  EXPECT_THROW(host.read(x.view(), DType::kFloat32,
                         [](std::span<const std::byte>) { throw std::runtime_error("full"); }),
               std::runtime_error);
  std::size_t bytes = 0;
  host.read(x.view(), DType::kFloat32,
            [&](std::span<const std::byte> piece) { bytes += piece.size(); });
  EXPECT_EQ(bytes, 4'000'000u);
  EXPECT_THROW(host.read(ops::transpose(full(context, {2, 3}, 1.0, DType::kFloat32), 0, 1).view(),
                         DType::kFloat32, [](std::span<const std::byte>) {}),
               InternalError);
}

}  // namespace
}  // namespace meshloom
