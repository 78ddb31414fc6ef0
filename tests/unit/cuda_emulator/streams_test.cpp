// SPDX-License-Identifier: Apache-2.0
// Faults of streams, of pinned memory and of allocators; and the order of work.
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "tests/unit/cuda_emulator/emulated_memory.h"
#include "tests/unit/cuda_emulator/planted_kernels.h"

namespace meshloom::testing {
namespace {

using optimised::add_one;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kSeeds = 5;
constexpr int kElements = 300;

class Event {
 public:
  Event() { check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  operator cudaEvent_t() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// The first error of a body, or "". Faults are taken.
template <class Body>
std::string error_of(Body&& body) {
  std::string text;
  try {
    body();
  } catch (const std::runtime_error& error) {
    text = error.what();
  }
  emulator::take_faults();
  return text;
}

/// `second` reads what `first` writes, behind an event or not.
std::string run_two_streams(bool wait) {
  return error_of([&] {
    const TestStream first, second;
    const DeviceArray<float> in(ramp(kElements), first), middle(kElements), out(kElements);
    const Event event;
    check(cudaStreamSynchronize(first));
    check(cudaMemsetAsync(middle.data(), 0, kElements * sizeof(float), first));
    check(cudaStreamSynchronize(first));
    add_one(middle.data(), in.data(), kElements, first);
    check(cudaEventRecord(event, first));
    if (wait) check(cudaStreamWaitEvent(second, event, 0));
    add_one(out.data(), middle.data(), kElements, second);
    if (wait) {
      EXPECT_EQ(out.values(second)[5], ramp(kElements)[5] + 2);
    }
    second.finish();
    first.finish();
  });
}

TEST(EmulatedStreamsTest, FindsAMissingEventWait) {
  for (int seed = 1; seed <= kSeeds; ++seed) {
    emulator::set_seed(static_cast<std::uint64_t>(seed));
    EXPECT_THAT(run_two_streams(false), HasSubstr("work of two streams without an event between"));
    EXPECT_EQ(run_two_streams(true), "");
  }
}

/// A buffer that `reader` still reads is written by `writer`.
std::string reuse(bool wait) {
  return error_of([&] {
    const TestStream writer, reader;
    const DeviceArray<float> buffer(ramp(kElements), writer), out(kElements);
    const std::vector<float> other(kElements, 1.0f);
    writer.finish();
    add_one(out.data(), buffer.data(), kElements, reader);
    if (wait) reader.finish();
    check(cudaMemcpyAsync(buffer.data(), other.data(), kElements * sizeof(float),
                          cudaMemcpyHostToDevice, writer));
    writer.finish();
    reader.finish();
  });
}

TEST(EmulatedStreamsTest, FindsABufferThatIsUsedAgainTooEarly) {
  for (int seed = 1; seed <= kSeeds; ++seed) {
    emulator::set_seed(static_cast<std::uint64_t>(seed));
    EXPECT_THAT(reuse(false), HasSubstr("work of two streams without an event between"));
    EXPECT_EQ(reuse(true), "");
  }
}

TEST(EmulatedStreamsTest, FindsPinnedMemoryThatChangesBeforeItsCopy) {
  for (const bool early : {true, false}) {
    const std::string error = error_of([&] {
      const TestStream stream;
      const DeviceArray<float> to(kElements);
      float* pinned = nullptr;
      check(cudaMallocHost(reinterpret_cast<void**>(&pinned), kElements * sizeof(float)));
      for (int i = 0; i < kElements; ++i) pinned[i] = 1;
      check(cudaMemcpyAsync(to.data(), pinned, kElements * sizeof(float), cudaMemcpyHostToDevice,
                            stream));
      if (!early) stream.finish();
      pinned[kElements - 1] = 2;
      const cudaError_t result = cudaStreamSynchronize(stream);
      const std::string text = result == cudaSuccess ? "" : cudaGetErrorString(result);
      emulator::take_faults();
      check(cudaFreeHost(pinned));
      if (!text.empty()) throw std::runtime_error(text);
    });
    if (early)
      EXPECT_THAT(error, HasSubstr("changed before the copy from it ran"));
    else
      EXPECT_EQ(error, "");
  }
}

TEST(EmulatedStreamsTest, CopiesToPinnedMemoryComeLate) {
  const TestStream stream;
  const DeviceArray<float> from(ramp(4), stream);
  float* pinned = nullptr;
  check(cudaMallocHost(reinterpret_cast<void**>(&pinned), 4 * sizeof(float)));
  check(cudaMemcpyAsync(pinned, from.data(), 4 * sizeof(float), cudaMemcpyDeviceToHost, stream));
  EXPECT_NE(pinned[0], pinned[0]);
  stream.finish();
  EXPECT_EQ(pinned[3], ramp(4)[3]);
  check(cudaFreeHost(pinned));
}

/// A segment of two blocks with a guard between them, as an allocator leaves them.
class EmulatedAllocatorTest : public ::testing::Test {
 protected:
  EmulatedAllocatorTest() {
    emulator::poison(segment_.data(), kSegment * sizeof(float));
    emulator::unpoison(first(), kBlock * sizeof(float));
    emulator::unpoison(second(), kBlock * sizeof(float));
  }

  static constexpr std::size_t kSegment = 1024, kBlock = 100, kNext = 192;
  float* first() const { return segment_.data(); }
  float* second() const { return segment_.data() + kNext; }
  void fill(float* block, std::size_t n = kBlock) const {
    check(cudaMemsetAsync(block, 0, n * sizeof(float), stream_));
  }

  TestStream stream_;
  DeviceArray<float> segment_{kSegment};
};

TEST_F(EmulatedAllocatorTest, FindsABlockThatWasFreed) {
  fill(first());
  // Work that was given before the block was freed still has it.
  add_one(second(), first(), kBlock, stream_);
  emulator::poison(first(), kBlock * sizeof(float));
  EXPECT_EQ(error_of([&] { stream_.finish(); }), "");
  EXPECT_THAT(error_of([&] {
                add_one(second(), first(), kBlock, stream_);
                stream_.finish();
              }),
              HasSubstr("memory that is not allocated"));
}

TEST_F(EmulatedAllocatorTest, FindsAWritePastTheEndOfABlock) {
  fill(second());
  EXPECT_THAT(error_of([&] {
                add_one(first(), second(), kBlock, stream_);
                fill(first(), kBlock + 1);
                stream_.finish();
              }),
              AllOf(HasSubstr("memory that is not allocated"), HasSubstr("a fill")));
}

TEST_F(EmulatedAllocatorTest, ABlockThatIsHandedOutAgainHoldsNothing) {
  fill(first());
  stream_.finish();
  emulator::poison(first(), kBlock * sizeof(float));
  emulator::unpoison(first(), kBlock * sizeof(float));
  EXPECT_THAT(error_of([&] {
                add_one(second(), first(), kBlock, stream_);
                stream_.finish();
              }),
              HasSubstr("memory that was never written"));
}

TEST_F(EmulatedAllocatorTest, AnotherStreamsWorkRunsAsTheMemoryWasWhenItWasGiven) {
  for (int seed = 1; seed <= kSeeds; ++seed) {
    emulator::set_seed(static_cast<std::uint64_t>(seed));
    const TestStream other;
    fill(first());
    fill(second());
    stream_.finish();
    add_one(second(), first(), kBlock, stream_);
    emulator::poison(second(), kBlock * sizeof(float));
    // Runs before or after the other stream's work.
    const DeviceArray<float> elsewhere(ramp(10), other);
    other.finish();
    stream_.finish();
    emulator::unpoison(second(), kBlock * sizeof(float));
  }
  EXPECT_EQ(only_fault(), "");
}

TEST(EmulatedStreamsTest, TheHostCannotTouchTheDevicesMemory) {
  const DeviceArray<float> array(4);
  EXPECT_EXIT(static_cast<void>(*static_cast<volatile float*>(array.data())),
              ::testing::ExitedWithCode(86), "the host touched");
}

TEST(EmulatedStreamsTest, SeedsGiveOtherOrdersOfStreams) {
  std::set<int> orders;
  for (int seed = 1; seed <= 20; ++seed) {
    emulator::set_seed(static_cast<std::uint64_t>(seed));
    const TestStream first, second;
    std::string order;
    for (int i = 0; i < 2; ++i) {
      check(emulator::queue_library_call(first, "a", {}, [&] { order += 'a'; }));
      check(emulator::queue_library_call(second, "b", {}, [&] { order += 'b'; }));
    }
    first.finish();
    second.finish();
    int number = 0;
    for (const char c : order) number = number * 2 + (c == 'b');
    orders.insert(number);
  }
  EXPECT_GE(orders.size(), 4u);
}

TEST(EmulatedStreamsTest, LibraryCallsTouchWhatTheyName) {
  const DeviceArray<float> array(4);
  EXPECT_THAT(error_of([&] {
                const TestStream stream;
                check(emulator::queue_library_call(stream, "a product", {{array.data(), 16, false}},
                                                   [] {}));
                stream.finish();
              }),
              AllOf(HasSubstr("memory that was never written"), HasSubstr("a product")));
}

// Two ranks, each with a device of its own; the second one's memory is not the first one's.
TEST(EmulatedStreamsTest, RanksAsThreadsHaveADeviceEach) {
  std::vector<float> results(2);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.emplace_back([rank, &results] {
      check(cudaSetDevice(rank));
      const TestStream stream;
      for (int i = 0; i < 20; ++i) {
        const DeviceArray<float> in(ramp(kElements), stream), out(kElements);
        add_one(out.data(), in.data(), kElements, stream);
        results[static_cast<std::size_t>(rank)] = out.values(stream)[9];
      }
    });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(results, std::vector<float>(2, ramp(10)[9] + 1));
  EXPECT_EQ(only_fault(), "");
}

TEST(EmulatedStreamsTest, RefusesMemoryOfAnotherDevice) {
  check(cudaSetDevice(1));
  const DeviceArray<float> other(kElements);
  check(cudaSetDevice(0));
  EXPECT_THAT(error_of([&] {
                const TestStream stream;
                const DeviceArray<float> out(kElements);
                add_one(out.data(), other.data(), kElements, stream);
                stream.finish();
              }),
              HasSubstr("memory of another device: read of 4 bytes at an address of cuda:1"));
}

TEST(EmulatedStreamsTest, SaysWhatIsAskedAndFreeWhereMemoryEnds) {
  void* data = nullptr;
  EXPECT_EQ(cudaMalloc(&data, std::size_t{9} << 30), cudaErrorMemoryAllocation);
  EXPECT_THAT(cudaGetErrorString(cudaErrorMemoryAllocation),
              HasSubstr("9663676416 bytes where 8589934592 of 8589934592 are free"));
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

}  // namespace
}  // namespace meshloom::testing
