// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/cpu_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/backend_table.h"
#include "kernels/base/error.h"

namespace meshloom::kernels {
namespace {

TEST(CpuBackend, GivesMemoryOfItsKinds) {
  Backend& backend = backend_for(kCpuDevice);
  for (const MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kHost}) {
    const auto source = backend.make_source(kind, Threads{2});
    EXPECT_EQ(source->device(), kCpuDevice);
    const std::size_t bytes = source->granularity();
    std::byte* const data = source->acquire(bytes);
    std::fill_n(data, bytes, std::byte{7});
    ASSERT_TRUE(source->extend(data, bytes, bytes));
    EXPECT_EQ(data[bytes - 1], std::byte{7});
    data[2 * bytes - 1] = std::byte{1};
    source->release(data, 2 * bytes);
  }
  EXPECT_THROW(backend.make_source(MemoryKind::kSymmetric, {}), Unimplemented);
}

TEST(CpuBackend, CopiesAndEventsAreDoneAtOnce) {
  Backend& backend = backend_for(kCpuDevice);
  const KernelContext context;
  std::vector<float> values = {1.5f, -2.0f, 3.25f};
  std::vector<double> host(3);
  const auto before = backend.make_event(), after = backend.make_event();
  before->wait();  // no mark yet
  before->record(context.stream);
  backend.copy_to_host_async(context, make_view(host.data(), DType::kFloat64, {3}),
                             make_view(values.data(), DType::kFloat32, {3}));
  after->record(context.stream);
  after->wait();
  EXPECT_EQ(host, (std::vector<double>{1.5, -2.0, 3.25}));
  EXPECT_GE(after->seconds_since(*before), 0.0);
  EXPECT_LE(before->seconds_since(*after), 0.0);
  EXPECT_EQ(after->seconds_since(*after), 0.0);
}

}  // namespace
}  // namespace meshloom::kernels
