// SPDX-License-Identifier: Apache-2.0
// Tensors in symmetric memory: peers read and write them where they lie.
#include "daemon/comm/symm_mem/tensors/symmetric_source.h"

#include <gtest/gtest.h>

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
    const auto memory = std::make_shared<SymmetricMemory>();
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

TEST(SymmetricSource, TensorsOfTheDeviceAreNotSymmetric) {
  meshloom::testing::run_ranks(2, [](ProcessGroup& group) {
    const auto memory = std::make_shared<SymmetricMemory>();
    ExecutionContext context(options_on(memory));
    const Tensor tensor = empty(context, {8}, DType::kFloat32);
    EXPECT_EQ(memory->enable(group).rendezvous(tensor.view()), nullptr);
  });
}

TEST(SymmetricSource, MoreRoomIsAFurtherSegment) {
  const auto memory = std::make_shared<SymmetricMemory>();
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
  const auto memory = std::make_shared<SymmetricMemory>();
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
