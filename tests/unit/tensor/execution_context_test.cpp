// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/execution_context.h"

#include <gtest/gtest.h>

#include <vector>

#include "daemon/tensor/tensor.h"
#include "kernels/base/error.h"
#include "kernels/cpu/heap_source.h"

namespace meshloom {
namespace {

TEST(PollPoint, RunsBetweenItsMakingAndItsEnd) {
  ExecutionContext context;
  std::vector<int> ran;
  context.poll();
  {
    const PollPoint first(context, [&] { ran.push_back(1); });
    context.poll();
    {
      const PollPoint second(context, [&] { ran.push_back(2); });
      context.poll();
    }
    context.poll();
  }
  context.poll();
  EXPECT_EQ(ran, (std::vector<int>{1, 1, 2, 1}));
}

TEST(PollPoint, TheOlderMayEndFirst) {
  ExecutionContext context;
  int ran = 0;
  auto first = std::make_unique<PollPoint>(context, [&] { ran += 1; });
  const PollPoint second(context, [&] { ran += 10; });
  first.reset();
  context.poll();
  EXPECT_EQ(ran, 10);
}

TEST(ExecutionContext, AllocatesByKindOfMemory) {
  ExecutionContext::Options options;
  options.allocator = Allocator::create(kernels::cpu::make_heap_source());
  const ExecutionContext without(options);
  EXPECT_EQ(&without.allocator(MemoryKind::kSymmetric), options.allocator.get());

  options.symmetric_allocator = Allocator::create(kernels::cpu::make_heap_source());
  ExecutionContext context(options);
  const Tensor plain = empty(context, {100}, DType::kFloat32);
  EXPECT_EQ(options.symmetric_allocator->stats().bytes_in_use, 0u);
  const Tensor shared = empty(context, {100}, DType::kFloat32, MemoryKind::kSymmetric);
  EXPECT_GE(options.symmetric_allocator->stats().bytes_in_use, 400u);

  const auto on_host = context.allocator(MemoryKind::kHost).allocate(100);
  EXPECT_GE(context.options().host_allocator->stats().bytes_in_use, 100u);
  EXPECT_EQ(context.options().host_allocator->device(), kCpuDevice);
  EXPECT_THROW(empty(context, {1}, DType::kFloat32, MemoryKind::kHost), InternalError);
}

}  // namespace
}  // namespace meshloom
