// SPDX-License-Identifier: Apache-2.0
// What every backend promises of memory, streams, events and copies between host and device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/error.h"
#include "tests/support/kernel_device.h"

namespace meshloom::kernels::test {
namespace {

/// Memory of kind kHost, given back at the end.
class HostMemory {
 public:
  explicit HostMemory(std::size_t bytes)
      : source_(backend().make_source(MemoryKind::kHost, {})),
        bytes_((bytes + source_->granularity() - 1) / source_->granularity() *
               source_->granularity()),
        data_(source_->acquire(bytes_)) {}
  ~HostMemory() { source_->release(data_, bytes_); }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::unique_ptr<SegmentSource> source_;
  std::size_t bytes_;
  std::byte* data_;
};

template <class T>
std::vector<T> counted(std::size_t count, T first) {
  std::vector<T> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

/// Dense, on the device of the tests.
TensorView on_device(const std::shared_ptr<Storage>& storage, DType dtype, const Shape& shape) {
  return make_view(storage->data(), dtype, shape, meshloom::testing::test_device());
}

TEST(Memory, SourcesAreOfTheDeviceAndOfTheHost) {
  const auto device = backend().make_source(MemoryKind::kDevice, {});
  EXPECT_EQ(device->device(), meshloom::testing::test_device());
  EXPECT_GT(device->granularity(), 0u);
  if (std::string_view(backend().name()) == "cuda") {
    EXPECT_GE(device->granularity(), std::size_t{64} << 20) << "few, large segments";
  }
  EXPECT_EQ(backend().make_source(MemoryKind::kHost, {})->device(), kCpuDevice);
  std::byte* const data = device->acquire(device->granularity());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 256, 0u);
  device->release(data, device->granularity());
}

TEST(Memory, WhatThereIsOfItIsKnown) {
  const DeviceMemory memory = backend().memory();
  EXPECT_GT(memory.all, 0);
  EXPECT_GE(memory.free, 0);
  EXPECT_LE(memory.free, memory.all);
  EXPECT_FALSE(backend().describe().compute_class.empty());
}

TEST(Memory, TheHostMayChangeWhatItUploadsAtOnce) {
  // More than any ring of buffers holds, and a part of one.
  for (const std::size_t count : {std::size_t{5} << 20, std::size_t{7}}) {
    const auto storage = allocate_on_device(count * 4);
    const TensorView on = on_device(storage, DType::kInt32, {static_cast<std::int64_t>(count)});
    const auto values = counted<std::int32_t>(count, 17);
    auto given = values;
    const TensorView host = make_view(given.data(), DType::kInt32, on.shape);
    backend().copy_from_host(test_context(), on, host);
    given.assign(count, -1);
    backend().copy_to_host(test_context(), host, on);
    EXPECT_EQ(given, values);
  }
}

TEST(Memory, ManySmallUploadsKeepTheirValues) {
  constexpr std::int64_t kCount = 3000;
  const auto storage = allocate_on_device(kCount * 8);
  for (std::int64_t i = 0; i < kCount; ++i) {
    std::int64_t value = i * 3;
    TensorView to = on_device(storage, DType::kInt64, {1});
    to.data = to.as<std::int64_t>() + i;
    backend().copy_from_host(test_context(), to, make_view(&value, DType::kInt64, {1}));
    value = -1;
  }
  std::vector<std::int64_t> got(kCount);
  backend().copy_to_host(test_context(), make_view(got.data(), DType::kInt64, {kCount}),
                         on_device(storage, DType::kInt64, {kCount}));
  for (std::int64_t i = 0; i < kCount; ++i) ASSERT_EQ(got[static_cast<std::size_t>(i)], i * 3);
}

TEST(Memory, CopiesToAndFromTheHostConvertAndReorder) {
  // Both sides are [4, 6] with rows 7 apart on the host, and columns first on the device.
  std::vector<float> given(4 * 7), got(4 * 7, -1.0f);
  std::iota(given.begin(), given.end(), 1.0f);
  TensorView host = make_view(given.data(), DType::kFloat32, {4, 6});
  host.strides = {7, 1};
  TensorView back = host;
  back.data = got.data();
  const auto storage = allocate_on_device(24 * 2);
  TensorView on = on_device(storage, DType::kBFloat16, {4, 6});
  on.strides = {1, 4};
  const auto expect_values = [&] {
    for (std::size_t row = 0; row < 4; ++row) {
      for (std::size_t column = 0; column < 6; ++column)
        ASSERT_EQ(got[row * 7 + column], given[row * 7 + column]) << row << ", " << column;
      ASSERT_EQ(got[row * 7 + 6], -1.0f) << "between rows nothing is written";
    }
  };
  backend().copy_from_host(test_context(), on, host);
  backend().copy_to_host(test_context(), back, on);
  expect_values();

  HostMemory pinned(4 * 7 * 4);
  std::copy(given.begin(), given.end(), pinned.as<float>());
  TensorView early = host;
  early.data = pinned.as<float>();
  backend().fill(test_context(), on, 0.0);
  backend().copy_from_host_async(test_context(), on, early);
  got.assign(got.size(), -1.0f);
  backend().copy_to_host(test_context(), back, on);
  expect_values();
}

TEST(Memory, AnEventTellsWhenAsyncCopiesAreDone) {
  constexpr std::int64_t kCount = 1000;
  HostMemory from(kCount * 4), to(kCount * 4);
  std::iota(from.as<float>(), from.as<float>() + kCount, 0.5f);
  const auto storage = allocate_on_device(kCount * 4);
  const TensorView on = on_device(storage, DType::kFloat32, {kCount});
  const auto first = backend().make_event(), last = backend().make_event();
  EXPECT_TRUE(first->done()) << "without a mark";
  first->wait();
  first->record(test_context().stream);
  backend().copy_from_host_async(test_context(), on,
                                 make_view(from.as<float>(), DType::kFloat32, {kCount}));
  backend().copy_to_host_async(test_context(), make_view(to.as<float>(), DType::kFloat32, {kCount}),
                               on);
  last->record(test_context().stream);
  last->wait();
  EXPECT_TRUE(last->done());
  EXPECT_TRUE(first->done()) << "it lies before";
  EXPECT_GE(last->seconds_since(*first), 0.0);
  for (std::int64_t i = 0; i < kCount; ++i)
    ASSERT_EQ(to.as<float>()[i], 0.5f + static_cast<float>(i));
}

TEST(Memory, AStreamWaitsForTheMarkOfAnother) {
  const auto other = backend().make_stream(meshloom::testing::test_device());
  const KernelContext behind{{1}, other->get(), nullptr};
  const auto a = allocate_on_device(4000), b = allocate_on_device(4000);
  const TensorView first = on_device(a, DType::kFloat32, {1000});
  const TensorView second = on_device(b, DType::kFloat32, {1000});
  const auto unmarked = backend().make_event(), mark = backend().make_event();
  backend().wait_event(other->get(), *unmarked);
  backend().fill(test_context(), first, 3.0);
  mark->record(test_context().stream);
  backend().wait_event(other->get(), *mark);
  backend().copy(behind, second, first);
  std::vector<float> got(1000);
  backend().copy_to_host(behind, make_view(got.data(), DType::kFloat32, {1000}), second);
  EXPECT_EQ(got, std::vector<float>(1000, 3.0f));
}

TEST(Memory, EmptyCopiesNeedNoMemory) {
  float nothing = 0;
  const TensorView host = make_view(&nothing, DType::kFloat32, {0, 3});
  const auto storage = allocate_on_device(0);
  const TensorView on = on_device(storage, DType::kFloat32, {0, 3});
  EXPECT_NO_THROW(backend().copy_from_host(test_context(), on, host));
  EXPECT_NO_THROW(backend().copy_from_host_async(test_context(), on, host));
  EXPECT_NO_THROW(backend().copy_to_host(test_context(), host, on));
  EXPECT_NO_THROW(backend().copy_to_host_async(test_context(), host, on));
}

TEST(Memory, TooMuchIsRefusedWithItsSize) {
  if (meshloom::testing::test_device() == kCpuDevice)
    GTEST_SKIP() << "a host may promise more memory than it has";
  const auto source = backend().make_source(MemoryKind::kDevice, {});
  const std::size_t far_too_much =
      (std::size_t{1} << 46) / source->granularity() * source->granularity();
  try {
    source->acquire(far_too_much);
    FAIL() << "there is no such device";
  } catch (const ResourceExhausted& error) {
    EXPECT_EQ(error.reason(), "OUT_OF_MEMORY");
    EXPECT_EQ(error.metadata().at("bytes"), std::to_string(far_too_much));
  }
}

}  // namespace
}  // namespace meshloom::kernels::test
