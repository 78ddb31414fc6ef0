// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/host_uploads.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "kernels/base/error.h"
#include "tests/support/fenced_device/fenced_device.h"

namespace meshloom {
namespace {

ExecutionContext::Options uploads_on_fenced_device() {
  ExecutionContext::Options options;
  options.device = {DeviceKind::kCuda, 0};
  options.backend = &testing::fenced_device(0);
  return options;
}

/// On the CPU, and on a device that copies while the host goes on.
class HostUploadsTest : public ::testing::TestWithParam<bool> {
 protected:
  ExecutionContext context_{GetParam() ? uploads_on_fenced_device() : ExecutionContext::Options()};
};

INSTANTIATE_TEST_SUITE_P(Devices, HostUploadsTest, ::testing::Bool(), [](const auto& test) {
  return std::string(test.param ? "fenced" : "cpu");
});

TEST_P(HostUploadsTest, ManyOfAnySizesArriveThoughTheHostsValuesChange) {
  std::vector<Tensor> tensors;
  {
    HostUploads uploads(context_);
    std::vector<std::int64_t> values;
    for (std::int64_t i = 0; i < 100; ++i) {
      values.assign(static_cast<std::size_t>(i * 37 % 300), i);
      std::iota(values.begin(), values.end(), 1000 * i);
      tensors.push_back(uploads.tensor({static_cast<std::int64_t>(values.size())}, values));
    }
    std::fill(values.begin(), values.end(), -1);
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::vector<double> found = tensors[i].to_vector();
    ASSERT_EQ(found.size(), i * 37 % 300);
    for (std::size_t j = 0; j < found.size(); ++j)
      ASSERT_EQ(found[j], static_cast<double>(1000 * i + j)) << i << " " << j;
  }
}

TEST_P(HostUploadsTest, ValuesHaveTheShape) {
  HostUploads uploads(context_);
  const std::vector<float> values{1.5f, 2.5f, -3.0f, 4.0f, 5.0f, 6.0f};
  const Tensor x = uploads.tensor({2, 3}, values);
  EXPECT_EQ(x.shape(), (Shape{2, 3}));
  EXPECT_EQ(x.dtype(), DType::kFloat32);
  EXPECT_EQ(x.to_vector(), std::vector<double>(values.begin(), values.end()));
  EXPECT_THROW(uploads.tensor({2, 2}, values), InvalidArgument);
}

TEST(HostUploads, TheTensorsOfABatchWaitForNothing) {
  auto& device = testing::fenced_device(0);
  ExecutionContext context(uploads_on_fenced_device());
  HostUploads uploads(context);
  const std::vector<std::int64_t> values(64, 3);
  device.reset_counts();
  for (int i = 0; i < 5; ++i) uploads.tensor({8, 8}, values);
  EXPECT_EQ(device.counts().waits, 0);
  EXPECT_EQ(device.counts().copies_from_host, 5);
}

}  // namespace
}  // namespace meshloom
