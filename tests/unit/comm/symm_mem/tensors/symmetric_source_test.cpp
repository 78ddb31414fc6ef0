// SPDX-License-Identifier: Apache-2.0
// Tensors in symmetric memory: peers read and write them where they lie.
#include "daemon/comm/symm_mem/tensors/symmetric_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <random>
#include <thread>

#include "daemon/comm/exposure.h"
#include "daemon/tensor/execution_context.h"
#include "daemon/tensor/tensor.h"
#include "tests/support/thread_ranks.h"

namespace meshloom::comm {
namespace {

ExecutionContext::Options options_on(const std::shared_ptr<SymmetricMemory>& memory) {
  ExecutionContext::Options options;
  options.symmetric_allocator = Allocator::create(make_symmetric_source(memory));
  return options;
}

TEST(SymmetricSource, PeersSeeATensorWhereItLies) {
  meshloom::testing::run_ranks(3, [](ProcessGroup& group) {
    const auto memory = std::make_shared<HostSymmetricMemory>();
    SymmetricGroup& symmetric = memory->enable(group);
    ExecutionContext context(options_on(memory));
    const int rank = group.rank(), next = (rank + 1) % 3;
    // Offsets in the segments differ between ranks.
    const Tensor before =
        empty(context, {100 * (rank + 1)}, DType::kFloat32, MemoryKind::kSymmetric);
    const Tensor tensor = empty(context, {4, 5}, DType::kFloat32, MemoryKind::kSymmetric);
    const auto buffer = symmetric.rendezvous(tensor.view());
    ASSERT_NE(buffer, nullptr);
    const TensorView there = buffer->view(next, Shape{4, 5}, DType::kFloat32);
    there.as<float>()[19] = static_cast<float>(rank);
    symmetric.barrier(0);
    EXPECT_EQ(tensor.view().as<float>()[19], static_cast<float>((rank + 2) % 3));
    EXPECT_EQ(buffer->view(rank, Shape{4, 5}, DType::kFloat32).data, tensor.view().data);
    symmetric.barrier(0);
  });
}

constexpr int kRanks = 3;
constexpr std::int64_t kPart = 20'000;  // of float32: more than goes inline

/// One round after another in which a tensor goes back to the allocator as soon as its collective
/// is done, and its block is at once another tensor's, which is written.
class Reuse {
 public:
  explicit Reuse(ProcessGroup& group)
      : group_(group), random_(static_cast<unsigned>(group.rank())), context_([&] {
          ExecutionContext::Options options;
          options.symmetric_allocator = make_symmetric_allocator(group);
          return options;
        }()) {}

  void run(int rounds) {
    for (int round = 0; round < rounds; ++round) {
      all_gather();
      all_reduce();
      reduce_scatter();
      broadcast(round % kRanks);
      expose_and_read();
    }
    EXPECT_EQ(context_.options().symmetric_allocator->stats().segments_acquired, 1u);
    for (const auto& [name, counter] : group_.counters())
      EXPECT_EQ(counter.bytes_staged, 0u) << name;
  }

 private:
  Tensor filled(std::int64_t parts, int value) {
    Tensor x = empty(context_, {parts * kPart}, DType::kFloat32, MemoryKind::kSymmetric);
    fill(x, static_cast<float>(value));
    return x;
  }
  static void fill(const Tensor& x, float value) {
    std::fill_n(x.view().as<float>(), x.numel(), value);
  }
  static void expect(const TensorView& x, int value, const char* what) {
    const auto* data = x.as<float>();
    const auto bad = std::find_if(data, data + x.numel(),
                                  [&](float one) { return one != static_cast<float>(value); });
    EXPECT_EQ(bad, data + x.numel()) << what << " has " << *bad << ", expected " << value;
  }
  std::vector<TensorView> parts_of(const Tensor& x) {
    std::vector<TensorView> parts;
    for (int r = 0; r < kRanks; ++r)
      parts.push_back(make_view(x.view().as<float>() + r * kPart, DType::kFloat32, {kPart}));
    return parts;
  }
  /// Some ranks come late, and some poll late, so that they read when others are through.
  void dawdle() {
    if (random_() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random_() % 500));
  }
  void finish(const WorkPtr& work) {
    dawdle();
    work->wait_host();
  }
  /// The last owner lets go of `x`.
  void free_and_write_over(Tensor& x) {
    const void* const block = x.view().data;
    const std::int64_t n = x.numel();
    x = Tensor();
    const Tensor next = empty(context_, {n}, DType::kFloat32, MemoryKind::kSymmetric);
    EXPECT_EQ(next.view().data, block) << "the block is not used again";
    fill(next, std::numeric_limits<float>::quiet_NaN());
  }

  void all_gather() {
    Tensor mine = filled(1, group_.rank());
    const Tensor all = empty(context_, {kRanks * kPart}, DType::kFloat32);
    dawdle();
    finish(group_.all_gather(parts_of(all), mine.view()));
    free_and_write_over(mine);
    for (int r = 0; r < kRanks; ++r)
      expect(parts_of(all)[static_cast<std::size_t>(r)], r, "all_gather");
  }
  void all_reduce() {
    Tensor x = filled(1, group_.rank() + 1);
    dawdle();
    finish(group_.all_reduce(x.view(), ReduceOp::kSum));
    expect(x.view(), 6, "all_reduce");
    free_and_write_over(x);
  }
  void reduce_scatter() {
    Tensor x = filled(kRanks, group_.rank() + 1);
    const Tensor sum = empty(context_, {kPart}, DType::kFloat32);
    dawdle();
    finish(group_.reduce_scatter(sum.view(), parts_of(x), ReduceOp::kSum));
    free_and_write_over(x);
    expect(sum.view(), 6, "reduce_scatter");
  }
  void broadcast(int root) {
    Tensor x = filled(1, group_.rank());
    dawdle();
    finish(group_.broadcast(x.view(), root));
    expect(x.view(), root, "broadcast");
    free_and_write_over(x);
  }
  void expose_and_read() {
    Tensor mine = filled(1, group_.rank());
    const TensorView view = mine.view();
    const auto exposure = expose(group_, CollectiveKind::kAllGather, {&view, 1}, view.bytes());
    ASSERT_NE(exposure, nullptr);
    for (int step = 1; step < kRanks; ++step) {
      const int source = (group_.rank() + step) % kRanks;
      const TensorView theirs = exposure->of(source)[0];
      dawdle();
      expect(theirs, source, "exposure");
    }
    exposure->wait_host();
    free_and_write_over(mine);
  }

  ProcessGroup& group_;
  std::minstd_rand random_;
  ExecutionContext context_;
};

TEST(SymmetricSource, AFreedBlockIsUsedAgainWhenEveryRankHasPassedItsCollective) {
  meshloom::testing::run_ranks(kRanks, [](ProcessGroup& group) { Reuse(group).run(60); });
}

TEST(SymmetricSource, TensorsOfTheDeviceAreNotSymmetric) {
  meshloom::testing::run_ranks(2, [](ProcessGroup& group) {
    const auto memory = std::make_shared<HostSymmetricMemory>();
    ExecutionContext context(options_on(memory));
    const Tensor tensor = empty(context, {8}, DType::kFloat32);
    EXPECT_EQ(memory->enable(group).rendezvous(tensor.view()), nullptr);
  });
}

TEST(SymmetricSource, MoreRoomIsAFurtherSegment) {
  const auto memory = std::make_shared<HostSymmetricMemory>();
  const auto allocator = Allocator::create(make_symmetric_source(memory));
  const auto first = allocator->allocate(3 << 20);
  const auto second = allocator->allocate(9 << 20);
  EXPECT_EQ(allocator->stats().segments_acquired, 2u);
  EXPECT_NE(first->segment(), second->segment());
  for (const auto& storage : {first, second}) {
    const auto segment = memory->find(storage->data(), storage->bytes());
    ASSERT_NE(segment, nullptr);
    EXPECT_EQ(segment->data() + storage->offset(), storage->data());
  }
}

TEST(SymmetricSource, TrimGivesSegmentsBack) {
  const auto memory = std::make_shared<HostSymmetricMemory>();
  const auto allocator = Allocator::create(make_symmetric_source(memory));
  auto storage = allocator->allocate(1000);
  std::byte* const data = storage->data();
  storage.reset();
  EXPECT_NE(memory->find(data, 1), nullptr) << "kept for the next tensor";
  allocator->trim();
  EXPECT_EQ(memory->find(data, 1), nullptr);
}

}  // namespace
}  // namespace meshloom::comm
