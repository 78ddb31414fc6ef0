// SPDX-License-Identifier: Apache-2.0
// What tests of fused operations share: ranks as threads with symmetric memory, tensors sharded
// among them, and products in double.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <vector>

#include "daemon/comm/symm_mem/host_symmetric_memory.h"
#include "daemon/comm/symm_mem/tensors/symmetric_source.h"
#include "daemon/tensor/ops/shape.h"
#include "daemon/tensor/tensor.h"
#include "planner/shard.h"
#include "tests/support/thread_ranks.h"

namespace meshloom::comm::testing {

struct FusedRank {
  ExecutionContext& context;
  SymmetricGroup& group;
  int rank;
  int size;
};

/// Runs body on `ranks` threads, each with its own context and symmetric memory, in which tensors
/// of MemoryKind::kSymmetric lie.
inline void run_fused(int ranks, const std::function<void(FusedRank&)>& body) {
  meshloom::testing::run_ranks(ranks, [&](ProcessGroup& world) {
    const auto memory = std::make_shared<HostSymmetricMemory>();
    SymmetricGroup& group = memory->enable(world);
    ExecutionContext::Options options;
    options.symmetric_allocator = Allocator::create(make_symmetric_source(memory));
    ExecutionContext context(options);
    FusedRank rank{context, group, world.rank(), world.size()};
    body(rank);
  });
}

inline Tensor numbers(ExecutionContext& context, const Shape& shape, DType dtype, unsigned seed,
                      bool integers = false) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> whole(-3, 3);
  std::normal_distribution<double> normal;
  std::vector<double> values(static_cast<std::size_t>(numel(shape)));
  for (double& value : values) value = integers ? whole(random) : normal(random);
  return from_values(context, shape, values, dtype);
}

/// A rank's part of a dim by the ceil rule: a view.
inline Tensor part_of(const Tensor& whole, int dim, const FusedRank& rank) {
  const planner::ShardRange range = planner::shard_range(whole.size(dim), rank.size, rank.rank);
  return ops::slice(whole, dim, range.begin, range.end);
}

/// [.., K] times [K, N] in double, flat.
inline std::vector<double> product(const Tensor& a, const Tensor& b) {
  const auto inner = static_cast<std::size_t>(b.size(0)),
             columns = static_cast<std::size_t>(b.size(1));
  const std::vector<double> x = a.to_vector(), w = b.to_vector();
  std::size_t rows = 1;
  for (int d = 0; d + 1 < a.ndim(); ++d) rows *= static_cast<std::size_t>(a.size(d));
  std::vector<double> y(rows * columns, 0.0);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t k = 0; k < inner; ++k)
      for (std::size_t j = 0; j < columns; ++j)
        y[i * columns + j] += x[i * inner + k] * w[k * columns + j];
  return y;
}

/// Returns the product as a float64 tensor of A's leading sizes.
inline Tensor product_tensor(const Tensor& a, const Tensor& b) {
  Shape shape = a.shape();
  shape[a.ndim() - 1] = b.size(1);
  return from_values(a.context(), shape, product(a, b), DType::kFloat64);
}

inline void expect_near(const Tensor& got, const Tensor& expected, double absolute, double relative,
                        const std::string& what) {
  ASSERT_EQ(got.shape(), expected.shape()) << what;
  const std::vector<double> a = got.to_vector(), b = expected.to_vector();
  for (std::size_t i = 0; i < a.size(); ++i)
    ASSERT_LE(std::abs(a[i] - b[i]), absolute + relative * std::abs(b[i]))
        << what << ": element " << i << " is " << a[i] << ", expected " << b[i];
}

inline void expect_equal(const Tensor& got, const Tensor& expected, const std::string& what) {
  ASSERT_EQ(got.shape(), expected.shape()) << what;
  EXPECT_EQ(got.to_vector(), expected.to_vector()) << what;
}

}  // namespace meshloom::comm::testing
