// SPDX-License-Identifier: Apache-2.0
// What the fenced device finds, each fault beside a clean twin, and what it computes.
#include "tests/support/fenced_device/fenced_device.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/backend_table.h"
#include "kernels/base/error.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/fenced_device/fence_guard.h"

namespace meshloom::testing {
namespace {

using kernels::KernelContext;
using ::testing::ExitedWithCode;

constexpr Device kDevice{DeviceKind::kCuda, 0};
constexpr std::uint64_t kSeeds = 20;

TensorView host_view(std::vector<float>& values) {
  return make_view(values.data(), DType::kFloat32, {static_cast<std::int64_t>(values.size())});
}

/// The text of the InternalError that the call throws; empty if it throws none.
std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}

void expect_refused(const std::function<void()>& call, const std::string& text) {
  const std::string given = refusal(call);
  EXPECT_NE(given.find(text), std::string::npos) << "given: " << given << "\nexpected: " << text;
}

/// Segments of one kind of memory, which live as long as this.
class Segments {
 public:
  Segments(FencedBackend& device, MemoryKind kind) : source_(device.make_source(kind, {})) {}
  ~Segments() {
    while (!taken_.empty()) release();
  }
  Segments(const Segments&) = delete;
  Segments& operator=(const Segments&) = delete;

  /// Small enough for one grain each.
  TensorView floats(const Shape& shape) {
    taken_.push_back(source_->acquire(source_->granularity()));
    return make_view(taken_.back(), DType::kFloat32, shape, source_->device());
  }
  /// The newest one.
  void release() {
    source_->release(taken_.back(), source_->granularity());
    taken_.pop_back();
  }

 private:
  std::unique_ptr<SegmentSource> source_;
  std::vector<std::byte*> taken_;
};

class FencedDeviceTest : public ::testing::Test {
 protected:
  FencedDeviceTest() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    device_.set_seed(1);
    device_.reset_counts();
  }

  std::unique_ptr<Event> mark(const KernelContext& context) {
    std::unique_ptr<Event> event = device_.make_event();
    event->record(context.stream);
    return event;
  }
  std::vector<float> values_of(const KernelContext& context, const TensorView& view) {
    std::vector<float> values(static_cast<std::size_t>(view.numel()));
    device_.copy_to_host(context, make_view(values.data(), DType::kFloat32, view.shape), view);
    return values;
  }

  FencedBackend& device_ = fenced_device(0);
  Segments memory_{device_, MemoryKind::kDevice}, pinned_{device_, MemoryKind::kHost};
  std::shared_ptr<OwnedStream> stream_ = device_.make_stream(kDevice),
                               other_stream_ = device_.make_stream(kDevice);
  KernelContext first_{{}, stream_->get(), nullptr}, second_{{}, other_stream_->get(), nullptr};
};

// --- The device itself

TEST_F(FencedDeviceTest, IsInTheTableAndSaysWhatItIs) {
  EXPECT_EQ(&kernels::backend_for(kDevice), &device_);
  EXPECT_STREQ(device_.name(), "fenced");
  const auto description = device_.describe(), cpu = kernels::cpu::cpu_backend().describe();
  EXPECT_EQ(description.compute_class, "fenced_" + cpu.compute_class);
  EXPECT_EQ(description.hardware_class, "fenced_" + cpu.hardware_class);
  EXPECT_EQ(description.table_version, cpu.table_version);
}

TEST_F(FencedDeviceTest, HasAsMuchMemoryAsItIsGiven) {
  constexpr std::int64_t kGrain = std::int64_t{2} << 20, kUsual = std::int64_t{8} << 30;
  EXPECT_EQ(device_.memory().all, kUsual);
  device_.set_total_memory(2 * kGrain);
  memory_.floats({4});
  EXPECT_EQ(device_.memory().free, kGrain);
  memory_.floats({4});
  EXPECT_THROW(memory_.floats({4}), ResourceExhausted);
  memory_.release();
  EXPECT_EQ(device_.memory().free, kGrain);
  device_.set_total_memory(kUsual);
}

TEST_F(FencedDeviceTest, GivesTheBitsOfTheCpu) {
  std::vector<float> a(6 * 5), b(5 * 7), expected(6 * 7);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = std::sin(static_cast<float>(i));
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = std::cos(static_cast<float>(i));
  const auto view = [](std::vector<float>& values, const Shape& shape) {
    return make_view(values.data(), DType::kFloat32, shape);
  };
  HeapWorkspace workspace;
  kernels::cpu::cpu_backend().matmul({{}, {}, &workspace}, view(expected, {6, 7}), view(a, {6, 5}),
                                     view(b, {5, 7}), {});
  const TensorView on_a = memory_.floats({6, 5}), on_b = memory_.floats({5, 7});
  const TensorView on_y = memory_.floats({6, 7});
  device_.copy_from_host(first_, on_a, view(a, {6, 5}));
  device_.copy_from_host(first_, on_b, view(b, {5, 7}));
  // The call has taken its bytes.
  std::fill(a.begin(), a.end(), 0.0f);
  device_.matmul(first_, on_y, on_a, on_b, {});
  const std::vector<float> given = values_of(first_, on_y);
  EXPECT_EQ(std::memcmp(given.data(), expected.data(), given.size() * sizeof(float)), 0);
}

TEST_F(FencedDeviceTest, CopiesAnyStridesFromTheHost) {
  std::vector<float> rows = {1, 2, 3, 4, 5, 6};
  TensorView columns = make_view(rows.data(), DType::kFloat32, {3, 2});
  columns.strides = {1, 3};
  const TensorView x = memory_.floats({3, 2});
  device_.copy_from_host(first_, x, columns);
  EXPECT_EQ(values_of(first_, x), (std::vector<float>{1, 4, 2, 5, 3, 6}));
}

// --- When work runs

TEST_F(FencedDeviceTest, WorkRunsAtTheWaitAndNotBefore) {
  const TensorView x = memory_.floats({3}), host = pinned_.floats({3});
  device_.fill(first_, x, 3.0);
  device_.copy_to_host_async(first_, host, x);
  const auto arrived = mark(first_);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(std::isnan(host.as<float>()[i]));
  arrived->wait();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(host.as<float>()[i], 3.0f);
}

TEST_F(FencedDeviceTest, AnEventWithoutAMarkIsDone) {
  const auto event = device_.make_event();
  EXPECT_TRUE(event->done());
  event->wait();
  device_.wait_event(first_.stream, *event);
  EXPECT_EQ(device_.counts().waits, 0);
}

TEST_F(FencedDeviceTest, AskingNeverWaitsYetComesToAnEnd) {
  const TensorView x = memory_.floats({1});
  device_.fill(first_, x, 0.0);
  for (int i = 0; i < 50; ++i) device_.unary(first_, kernels::UnaryOp::kAdd, x, x, 1.0);
  const auto event = mark(first_);
  int polls = 0;
  while (!event->done()) ++polls;
  // Each asks for three items at most.
  EXPECT_GE(polls, 16);
  EXPECT_EQ(device_.counts().waits, 1);
  EXPECT_EQ(values_of(first_, x), std::vector<float>{50});
}

TEST_F(FencedDeviceTest, OrderAmongStreamsIsDrawn) {
  const TensorView x = memory_.floats({1}), y = memory_.floats({1}), host = pinned_.floats({1});
  device_.fill(first_, y, 1.0);
  mark(first_)->wait();
  int before = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    device_.set_seed(seed);
    device_.fill(first_, x, 1.0);
    device_.copy_to_host_async(second_, host, y);
    mark(first_)->wait();
    before += std::isnan(*host.as<float>()) ? 0 : 1;
    mark(second_)->wait();
    EXPECT_EQ(*host.as<float>(), 1.0f);
  }
  EXPECT_GT(before, 0);
  EXPECT_LT(before, static_cast<int>(kSeeds));
}

TEST_F(FencedDeviceTest, EveryOrderGivesTheSameNumbers) {
  const TensorView x = memory_.floats({1}), y = memory_.floats({1}), z = memory_.floats({1});
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    device_.set_seed(seed);
    device_.fill(first_, x, 2.0);
    device_.fill(second_, y, 7.0);
    for (int i = 0; i < 4; ++i) {
      // In turn each stream reads what the other one wrote.
      device_.wait_event(second_.stream, *mark(first_));
      device_.binary(second_, kernels::BinaryOp::kSub, y, y, x);
      device_.fill(second_, z, static_cast<double>(i));
      device_.wait_event(first_.stream, *mark(second_));
      device_.binary(first_, kernels::BinaryOp::kMul, x, x, y);
    }
    EXPECT_EQ(values_of(first_, x), std::vector<float>{-5163750}) << "seed " << seed;
  }
}

TEST_F(FencedDeviceTest, TheErrorOfAQueuedCallComesOutOfTheWait) {
  TensorView ids = memory_.floats({2, 2});
  ids.dtype = DType::kInt32;
  const TensorView x = memory_.floats({1});
  device_.softmax(first_, ids, ids, false);
  device_.fill(first_, x, 2.0);
  const auto event = mark(first_);
  EXPECT_THROW(event->wait(), Unimplemented);
  // It counts as done, and so does all that was waited for.
  EXPECT_TRUE(event->done());
  EXPECT_EQ(values_of(first_, x), std::vector<float>{2});
}

TEST_F(FencedDeviceTest, TheEndOfAStreamKeepsTheErrorThatItFinds) {
  TensorView ids = memory_.floats({2, 2});
  ids.dtype = DType::kInt32;
  {
    const auto brief = device_.make_stream(kDevice);
    device_.softmax({{}, brief->get(), nullptr}, ids, ids, false);
  }
  EXPECT_EQ(device_.take_errors().size(), 1u);
  EXPECT_TRUE(device_.take_errors().empty());
}

TEST_F(FencedDeviceTest, CountsWaitsAndCopies) {
  const TensorView x = memory_.floats({1}), host = pinned_.floats({1});
  std::vector<float> value = {1};
  device_.copy_from_host(first_, x, host_view(value));
  *host.as<float>() = 2;
  device_.copy_from_host_async(first_, x, host);
  const auto event = mark(first_);
  EXPECT_EQ(device_.counts().waits, 0);
  event->wait();
  event->wait();
  EXPECT_EQ(device_.counts().waits, 1);
  device_.copy_to_host_async(first_, host, x);
  values_of(first_, x);
  values_of(first_, x);
  EXPECT_EQ(device_.counts().waits, 3);
  EXPECT_EQ(device_.counts().calls, 5);
  EXPECT_EQ(device_.counts().copies_from_host, 2);
  EXPECT_EQ(device_.counts().copies_to_host, 3);
  device_.reset_counts();
  EXPECT_EQ(device_.counts().calls, 0);
}

TEST_F(FencedDeviceTest, TimeGoesOnWithTheWork) {
  const TensorView x = memory_.floats({1});
  const auto before = mark(first_);
  device_.fill(first_, x, 1.0);
  const auto after = mark(first_);
  EXPECT_GT(after->seconds_since(*before), 0.0);
  EXPECT_LT(before->seconds_since(*after), 0.0);
  EXPECT_EQ(device_.counts().waits, 1);
}

// --- The host and the fence

TEST_F(FencedDeviceTest, AHostReadEndsTheProcess) {
  const TensorView x = memory_.floats({4});
  device_.fill(first_, x, 1.0);
  EXPECT_EQ(values_of(first_, x), std::vector<float>(4, 1.0f));
  EXPECT_EXIT(
      { [[maybe_unused]] const float value = static_cast<volatile const float*>(x.data)[1]; },
      ExitedWithCode(kFenceExitStatus), "the host touched 0x[0-9a-f]+ of cuda:0 .offset 4 of");
}

TEST_F(FencedDeviceTest, AHostWriteEndsTheProcess) {
  const TensorView x = memory_.floats({4});
  std::vector<float> values(4, 2.0f);
  device_.copy_from_host(first_, x, host_view(values));
  EXPECT_EQ(values_of(first_, x), values);
  EXPECT_EXIT({ *static_cast<volatile float*>(x.data) = 1.0f; }, ExitedWithCode(kFenceExitStatus),
              "which only the device may touch\n.*unit_fenced_device.*\\[0x[0-9a-f]+\\]");
}

TEST_F(FencedDeviceTest, AFaultElsewhereIsNotTheGuards) {
  void* const closed = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(closed, MAP_FAILED);
  const auto died_otherwise = [](int status) {
    return WIFSIGNALED(status) || WEXITSTATUS(status) != kFenceExitStatus;
  };
  EXPECT_EXIT({ *static_cast<volatile char*>(closed) = 1; }, died_otherwise, "");
  ::munmap(closed, 4096);
}

// --- Views that lie elsewhere than they must

TEST_F(FencedDeviceTest, AHostViewInACallIsRefused) {
  std::vector<float> host(4, 1.0f);
  const TensorView x = memory_.floats({4}), y = memory_.floats({4});
  expect_refused([&] { device_.copy(first_, x, host_view(host)); },
                 "fenced device cuda:0: copy: src is in host memory");
  expect_refused([&] { device_.matmul(first_, y, host_view(host), x, {}); },
                 "fenced device cuda:0: matmul: a is in host memory");
  expect_refused([&] { device_.copy_from_host(first_, y, x); }, "host is of device cuda:0");
  TensorView lie = x;
  lie.device = kCpuDevice;
  expect_refused([&] { device_.copy_from_host(first_, y, lie); },
                 "host says host memory and shows that of cuda:0");
  device_.copy_from_host(first_, x, host_view(host));
  device_.copy(first_, y, x);
  EXPECT_EQ(values_of(first_, y), host);
}

TEST_F(FencedDeviceTest, AHostPointerThatSaysDeviceIsRefused) {
  std::vector<float> host(4);
  TensorView lie = host_view(host);
  lie.device = kDevice;
  expect_refused([&] { device_.fill(first_, lie, 1.0); },
                 "fill: dst shows memory that is not the device's");
}

TEST_F(FencedDeviceTest, AViewBeyondItsSegmentIsRefused) {
  TensorView x = memory_.floats({4});
  x.strides = {std::int64_t{1} << 20};
  expect_refused([&] { device_.fill(first_, x, 1.0); },
                 "fill: dst reaches beyond the memory of its segment");
}

TEST_F(FencedDeviceTest, AViewOfAnotherDeviceIsRefused) {
  Segments memory(fenced_device(1), MemoryKind::kDevice);
  const TensorView x = memory_.floats({4}), other = memory.floats({4});
  expect_refused([&] { device_.copy(first_, x, other); }, "copy: src is of device cuda:1");
  TensorView lie = other;
  lie.device = kDevice;
  expect_refused([&] { device_.copy(first_, x, lie); },
                 "copy: src shows memory that is not the device's");
}

TEST_F(FencedDeviceTest, MemoryUsedAfterItsReleaseIsRefused) {
  memory_.floats({4});
  const TensorView x = memory_.floats({4});
  device_.fill(first_, x, 1.0);
  memory_.release();
  expect_refused([&] { device_.fill(first_, x, 1.0); }, "dst shows memory that was released");
  // Its addresses are not given to somebody else.
  EXPECT_NE(memory_.floats({4}).data, x.data);
  expect_refused([&] { device_.fill(first_, x, 1.0); }, "dst shows memory that was released");
}

TEST_F(FencedDeviceTest, AStreamOfSomebodyElseIsRefused) {
  const TensorView x = memory_.floats({4});
  expect_refused([&] { device_.fill({}, x, 1.0); },
                 "fill: a stream of another backend, or none: its handle is null");
  const auto foreign = fenced_device(1).make_stream({DeviceKind::kCuda, 1});
  expect_refused(
      [&] {
        device_.fill({{}, foreign->get(), nullptr}, x, 1.0);
      },
      "fill: a stream of another backend");
  const Stream ended = device_.make_stream(kDevice)->get();
  expect_refused([&] { device_.fill({{}, ended, nullptr}, x, 1.0); }, "the stream has ended");
  const auto event = fenced_device(1).make_event();
  expect_refused([&] { device_.wait_event(first_.stream, *event); }, "an event of another device");
}

// --- Host memory that is copied while the host goes on

TEST_F(FencedDeviceTest, AsynchronousCopiesTakePinnedMemoryAlone) {
  std::vector<float> host(4);
  const TensorView x = memory_.floats({4});
  const std::string text = "host is not memory of kind kHost";
  expect_refused([&] { device_.copy_from_host_async(first_, x, host_view(host)); }, text);
  expect_refused([&] { device_.copy_to_host_async(first_, host_view(host), x); }, text);
  device_.copy_to_host_async(first_, pinned_.floats({4}), x);
}

TEST_F(FencedDeviceTest, AsynchronousCopiesLeaveGapsAlone) {
  const TensorView x = memory_.floats({2, 3}), block = pinned_.floats({3, 4});
  float* const values = block.as<float>();
  // The columns of three rows, each of which has a gap behind its two elements and before them.
  TensorView strided = make_view(values + 1, DType::kFloat32, {2, 3});
  strided.strides = {1, 4};
  std::iota(values, values + 12, 0.0f);
  device_.copy_from_host_async(first_, x, strided);
  const auto copied = mark(first_);
  // The gaps are not copied, and may change.
  values[0] = values[3] = -1.0f;
  copied->wait();
  EXPECT_EQ(values_of(first_, x), (std::vector<float>{1, 5, 9, 2, 6, 10}));
  device_.copy_from_host_async(first_, x, strided);
  copied->record(first_.stream);
  values[10] = -1.0f;
  expect_refused([&] { copied->wait(); }, "host memory was written before the copy");

  std::fill_n(values, 12, -2.0f);
  device_.fill(first_, x, 7.0);
  device_.copy_to_host_async(first_, strided, x);
  const auto arrived = mark(first_);
  const auto is_element = [](int at) { return at % 4 == 1 || at % 4 == 2; };
  for (int at = 0; at < 12; ++at) {
    if (is_element(at))
      EXPECT_TRUE(std::isnan(values[at])) << at;
    else
      EXPECT_EQ(values[at], -2.0f) << at;
  }
  arrived->wait();
  for (int at = 0; at < 12; ++at) EXPECT_EQ(values[at], is_element(at) ? 7.0f : -2.0f) << at;
}

TEST_F(FencedDeviceTest, PinnedMemoryThatIsWrittenBeforeItsCopyIsRefused) {
  const TensorView x = memory_.floats({1}), host = pinned_.floats({1});
  *host.as<float>() = 1.0f;
  device_.copy_from_host_async(first_, x, host);
  const auto copied = mark(first_);
  copied->wait();
  *host.as<float>() = 2.0f;
  EXPECT_EQ(values_of(first_, x), std::vector<float>{1});
  device_.copy_from_host_async(first_, x, host);
  copied->record(first_.stream);
  *host.as<float>() = 3.0f;
  expect_refused([&] { copied->wait(); },
                 "host memory was written before the copy from it was done");
}

// --- Streams without an event between them

TEST_F(FencedDeviceTest, AMissingEventIsRefusedInEveryOrder) {
  const TensorView x = memory_.floats({4}), y = memory_.floats({4}), z = memory_.floats({4});
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    device_.set_seed(seed);
    device_.fill(second_, z, 1.0);
    const auto unrelated = mark(second_);
    device_.fill(first_, x, 2.0);
    const auto filled = mark(first_);
    // The device may come to the fill by itself: nobody knows.
    while (!unrelated->done()) continue;
    expect_refused([&] { device_.copy(second_, y, x); },
                   "copy in stream 1 reads as src the bytes [");
    device_.wait_event(second_.stream, *filled);
    device_.copy(second_, y, x);
    // Reading in both streams is fine, writing in one is not.
    expect_refused([&] { device_.fill(first_, x, 3.0); }, "which copy in stream 1 reads as src");
    EXPECT_EQ(values_of(first_, x), std::vector<float>(4, 2.0f));
    EXPECT_EQ(values_of(second_, y), std::vector<float>(4, 2.0f));
  }
}

TEST_F(FencedDeviceTest, AWaitOfTheHostOrdersStreamsToo) {
  const TensorView x = memory_.floats({4}), y = memory_.floats({4});
  device_.fill(first_, x, 1.0);
  mark(first_)->wait();
  device_.copy(second_, y, x);
  const auto copied = mark(second_);
  while (!copied->done()) continue;
  device_.fill(first_, x, 2.0);
  values_of(first_, x);
  device_.copy(second_, y, x);
  EXPECT_EQ(values_of(second_, y), std::vector<float>(4, 2.0f));
}

TEST_F(FencedDeviceTest, AnEventOrdersWhatCameBeforeItAlone) {
  const TensorView x = memory_.floats({4}), y = memory_.floats({4});
  device_.fill(first_, x, 1.0);
  const auto early = mark(first_);
  device_.fill(first_, y, 1.0);
  device_.wait_event(second_.stream, *early);
  device_.fill(second_, x, 2.0);
  expect_refused([&] { device_.fill(second_, y, 2.0); },
                 "with no event and no wait of the host between them");
}

TEST_F(FencedDeviceTest, HalvesOfOneTensorAreApart) {
  const TensorView x = memory_.floats({4, 2});
  device_.fill(first_, rows_of(x, 0, 2), 1.0);
  device_.fill(second_, rows_of(x, 2, 2), 2.0);
  expect_refused([&] { device_.fill(second_, rows_of(x, 1, 1), 3.0); }, "which fill in stream 0");
  mark(second_)->wait();
  EXPECT_EQ(values_of(first_, rows_of(x, 0, 2)), std::vector<float>(4, 1.0f));
  EXPECT_EQ(values_of(first_, rows_of(x, 2, 2)), std::vector<float>(4, 2.0f));
}

TEST_F(FencedDeviceTest, PinnedMemoryHasConflictsToo) {
  const TensorView x = memory_.floats({1}), y = memory_.floats({1}), host = pinned_.floats({1});
  device_.fill(first_, x, 1.0);
  device_.copy_to_host_async(first_, host, x);
  expect_refused([&] { device_.copy_from_host_async(second_, y, host); },
                 "which copy_to_host_async in stream 0 writes as host");
}

}  // namespace
}  // namespace meshloom::testing
