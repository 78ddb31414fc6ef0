// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/gradient_reducer.h"

#include <gtest/gtest.h>

#include <mutex>
#include <random>

#include "daemon/tensor/autograd/backward.h"
#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/reduce.h"
#include "kernels/base/error.h"
#include "tests/support/thread_ranks.h"

namespace meshloom::parallel {
namespace {

constexpr std::int64_t kSizes[] = {1000, 3, 70'000, 17, 0, 4096};
constexpr int kCount = 6;

std::vector<float> random_values(std::int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float& value : values) value = normal(random);
  return values;
}

/// A "model" whose gradient of parameter i is the factor that is given for it.
struct Leaves {
  explicit Leaves(ExecutionContext& c) : context(c), parameters(kCount) {
    for (int i = 0; i < kCount; ++i) {
      nn::Parameter& p = parameters[static_cast<std::size_t>(i)];
      p.value = zeros(context, {kSizes[i]}, DType::kFloat32);
      p.value.set_requires_grad(true);
      named.push_back({"p" + std::to_string(i), &p});
    }
  }

  /// Factors of parameter i on this rank in one micro batch.
  static std::vector<float> factors(int i, int rank, int micro_batch) {
    return random_values(kSizes[i], static_cast<unsigned>(i * 100 + rank * 10 + micro_batch));
  }

  void forward_backward(int rank, int micro_batch, const std::vector<bool>& used) {
    Tensor sum;
    for (int i = 0; i < kCount; ++i) {
      if (!used[static_cast<std::size_t>(i)] || kSizes[i] == 0) continue;
      const std::vector<float> values = factors(i, rank, micro_batch);
      const Tensor part = ops::sum(ops::mul(parameters[static_cast<std::size_t>(i)].value,
                                            from_values(context, {kSizes[i]}, values)));
      sum = sum ? ops::add(sum, part) : part;
    }
    if (sum) autograd::backward(sum);
  }

  ExecutionContext& context;
  std::vector<nn::Parameter> parameters;
  std::vector<nn::NamedParameter> named;
};

std::vector<float> floats_of(const Tensor& t) {
  const std::vector<double> values = t.to_vector();
  return {values.begin(), values.end()};
}

/// Gradients of all parameters after a step with two micro batches; empty where a parameter has
/// none.
std::vector<std::vector<float>> reduce_step(comm::ProcessGroup& world, std::int64_t bucket_bytes) {
  testing::TestContext context;
  Leaves leaves(context);
  GradientReducer reducer(context, world, leaves.named, {bucket_bytes});
  std::vector<std::vector<float>> gradients;
  for (int step = 0; step < 2; ++step) {
    for (auto& p : leaves.parameters) p.value.leaf_grad()->clear();
    // Rank 1 has no gradient of parameter 2; parameter 3 is used by nobody.
    const std::vector<bool> used = {true, true, world.rank() != 1, false, true, true};
    leaves.forward_backward(world.rank(), 0, used);
    reducer.begin();
    leaves.forward_backward(world.rank(), 1, used);
    reducer.finish();
    gradients.clear();
    for (auto& p : leaves.parameters)
      gradients.push_back(p.value.grad() ? floats_of(p.value.grad()) : std::vector<float>());
  }
  return gradients;
}

TEST(GradientReducer, SumsInRankOrderWhateverTheBuckets) {
  for (const int ranks : {2, 3, 4}) {
    std::vector<std::vector<float>> expected(kCount);
    for (int i = 0; i < kCount; ++i) {
      if (i == 3 || i == 4) continue;
      auto& sums = expected[static_cast<std::size_t>(i)];
      sums.assign(static_cast<std::size_t>(kSizes[i]), 0.0f);
      for (int r = 0; r < ranks; ++r) {
        const bool used = i != 2 || r != 1;
        const auto a = Leaves::factors(i, r, 0), b = Leaves::factors(i, r, 1);
        for (std::size_t e = 0; e < sums.size(); ++e) {
          const float mine = used ? a[e] + b[e] : 0.0f;
          sums[e] = r == 0 ? mine : sums[e] + mine;
        }
      }
    }
    for (const std::int64_t bucket_bytes : {4, 20'000, 1 << 30}) {
      std::mutex mutex;
      testing::run_ranks(ranks, [&](comm::ProcessGroup& world) {
        const auto got = reduce_step(world, bucket_bytes);
        const std::lock_guard lock(mutex);
        for (std::size_t i = 0; i < kCount; ++i)
          EXPECT_EQ(got[i], expected[i])
              << "parameter " << i << ", " << ranks << " ranks, buckets of " << bucket_bytes;
      });
    }
  }
}

TEST(GradientReducer, FullBucketsTravelDuringBackward) {
  testing::run_ranks(2, [](comm::ProcessGroup& world) {
    testing::TestContext context;
    Leaves leaves(context);
    GradientReducer reducer(context, world, leaves.named, {4});
    EXPECT_EQ(reducer.bucket_count(),
              static_cast<std::size_t>(kCount - 1));  // the empty one is in its neighbour's
    reducer.begin();
    leaves.forward_backward(world.rank(), 0, {true, true, true, true, true, true});
    EXPECT_GT(world.flight_record().size(), 0u) << "nothing was sent before finish()";
    reducer.finish();
    EXPECT_EQ(world.counter("all_reduce").calls, reducer.bucket_count());
  });
}

TEST(GradientReducer, ARankWithoutSamplesTakesPart) {
  testing::run_ranks(3, [](comm::ProcessGroup& world) {
    testing::TestContext context;
    Leaves leaves(context);
    GradientReducer reducer(context, world, leaves.named);
    reducer.begin();
    if (world.rank() == 0) leaves.forward_backward(0, 0, std::vector<bool>(kCount, true));
    reducer.finish();
    EXPECT_EQ(floats_of(leaves.parameters[0].value.grad()), Leaves::factors(0, 0, 0));
  });
}

TEST(GradientReducer, OneRankCostsNothing) {
  const auto world = testing::make_single_world();
  testing::TestContext context;
  Leaves leaves(context);
  GradientReducer reducer(context, *world, leaves.named);
  EXPECT_EQ(reducer.bucket_count(), 0u);
  reducer.begin();
  leaves.forward_backward(0, 0, std::vector<bool>(kCount, true));
  reducer.finish();
  EXPECT_EQ(floats_of(leaves.parameters[1].value.grad()), Leaves::factors(1, 0, 0));
}

TEST(GradientReducer, AMissingRankIsNamedByFinish) {
  testing::run_thread_ranks(2, [](comm::RankRuntime& runtime) {
    comm::GroupOptions options;
    options.timeout = std::chrono::milliseconds(100);
    const auto world = testing::make_test_world(runtime, options);
    if (runtime.rank() == 0) {
      testing::TestContext context;
      Leaves leaves(context);
      GradientReducer reducer(context, *world, leaves.named);
      reducer.begin();
      leaves.forward_backward(0, 0, std::vector<bool>(kCount, true));
      try {
        reducer.finish();
        ADD_FAILURE() << "finish() came to an end without rank 1";
      } catch (const DeadlineExceeded& error) {
        EXPECT_NE(std::string(error.what()).find("missing rank 1"), std::string::npos)
            << error.what();
      }
    }
    runtime.bootstrap().barrier();
  });
}

}  // namespace
}  // namespace meshloom::parallel
