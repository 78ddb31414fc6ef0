// SPDX-License-Identifier: Apache-2.0
// Implementations that are registered at the engine: when they are chosen, and what they are given.
#include <gtest/gtest.h>

#include "daemon/tensor/autograd/backward.h"
#include "daemon/tensor/autograd/function_node.h"
#include "daemon/tensor/ops/attention.h"
#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/reduce.h"
#include "daemon/tensor/ops/shape.h"
#include "tests/unit/dtensor/engine_rank.h"
#include "tests/unit/dtensor/global_values.h"

namespace meshloom::test {
namespace {

using planner::MeshRole;
using planner::OpId;

constexpr int kSequence = 2;  // dim of [B, H, S, D]
constexpr double kScale = 0.01;

/// Every rank's part of the sequence, joined; the gradient is what all ranks' queries give this
/// rank's part.
Tensor joined(const LocalCall& call, const Tensor& x) {
  const std::vector<int> dims = call.decision.mesh_dims(MeshRole::kSequence);
  Collectives& collectives = call.collectives;
  const Tensor all = collectives.all_gather(x, dims)->wait();
  std::vector<Tensor> parts;
  for (int rank = 0; rank < collectives.size(dims); ++rank)
    parts.push_back(ops::reshape(ops::slice(all, 0, rank, rank + 1), x.shape()));
  Tensor y = ops::cat(parts, kSequence);
  const std::int64_t first = collectives.rank(dims) * x.size(kSequence);
  if (autograd::should_record({&x}))
    autograd::record_op(
        "join", {&x}, {&y},
        [&collectives, dims, first, count = x.size(kSequence)](autograd::GradOutputs dy,
                                                               autograd::GradSink& sink) {
          const Tensor sum = collectives.all_reduce(dy[0], planner::PartialOp::kSum, dims)->wait();
          sink.emit(0, ops::contiguous(ops::slice(sum, kSequence, first, first + count)));
        });
  return y;
}

/// Stands in for ring attention: local queries over the keys of all ranks.
std::vector<Tensor> attention_along_sequence(const LocalCall& call) {
  const auto& options = call.options.as<ops::SdpaOptions>();
  EXPECT_EQ(options.scale, kScale);
  EXPECT_EQ(call.decision.mesh_dims(MeshRole::kSequence), std::vector<int>{1});
  EXPECT_EQ(call.attributes.dims[planner::kQueries],
            call.inputs[0].size(kSequence) * call.collectives.size({1}));
  EXPECT_EQ(call.parts[0].ranges(kSequence)[0].begin,
            call.coordinates[1] * call.inputs[0].size(kSequence));
  const auto [o, lse] = ops::scaled_dot_product_attention(
      call.inputs[0], joined(call, call.inputs[1]), joined(call, call.inputs[2]), options);
  return {o, lse};
}

struct Inputs {
  Tensor q, k, v;

  ops::SdpaResult attend() const {
    ops::SdpaOptions options;
    options.scale = kScale;
    return ops::scaled_dot_product_attention(q, k, v, options);
  }
};

/// Leaves with and without a layout, the same values on both.
Inputs make_inputs(EngineRank& rank, const std::vector<const char*>& texts, const Shape& shape) {
  const SpecPtr spec = make_spec(rank.mesh, texts, shape);
  const auto make = [&](double factor) {
    const Tensor values = make_local(rank.context, *spec, rank.mesh.coordinates());
    Tensor local = ops::mul(values, factor);
    local.set_requires_grad(true);
    return with_layout(local, spec, rank.engine);
  };
  return {make(1.0), make(0.5), make(0.25)};
}

void expect_part_of(const Tensor& local, const planner::DTensorSpec& spec, EngineRank& rank,
                    const Tensor& whole) {
  const std::vector<double> seen = local.to_vector(), all = whole.to_vector();
  const auto indices = held_indices(spec, rank.mesh.coordinates());
  ASSERT_EQ(seen.size(), indices.size());
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const double wanted = all[static_cast<std::size_t>(indices[i])];
    ASSERT_NEAR(seen[i], wanted, 1e-4 * (1.0 + std::abs(wanted))) << to_string(spec) << " " << i;
  }
}

TEST(DistributedOps, AttentionAlongASequenceIsChosenOnceItIsRegistered) {
  on_engine_mesh({2, 2}, [](EngineRank& rank) {
    const Shape shape{1, 4, 6, 3};
    const Inputs whole = make_inputs(rank, {"R", "R"}, shape);
    const ops::SdpaResult expected = whole.attend();
    autograd::backward(ops::sum(ops::mul(expected.o, expected.o)));

    const Inputs sharded = make_inputs(rank, {"S(1)", "S(2)"}, shape);
    const ops::SdpaResult gathered = sharded.attend();
    EXPECT_NE(gathered.o.layout()->spec->placement(1), Placement::shard(kSequence));

    rank.engine.register_implementation(
        {OpId::kAttention, {MeshRole::kSequence}, attention_along_sequence, true});
    const Inputs again = make_inputs(rank, {"S(1)", "S(2)"}, shape);
    rank.mesh.reset_counters();
    const ops::SdpaResult result = again.attend();
    EXPECT_EQ(rank.calls("all_gather"), 2u);
    EXPECT_EQ(rank.calls(), 2u);
    const SpecPtr& spec = result.o.layout()->spec;
    EXPECT_EQ(spec, again.q.layout()->spec);
    EXPECT_EQ(to_string(result.lse.layout()->spec->placements()), "[S(1), S(2)]");
    expect_part_of(local_of(result.o), *spec, rank, local_of(expected.o));
    autograd::backward(ops::sum(ops::mul(result.o, result.o)));
    for (const auto& [mine, one] : {std::pair{&again.q, &whole.q}, std::pair{&again.k, &whole.k},
                                    std::pair{&again.v, &whole.v}})
      expect_part_of(local_of(mine->grad()), *spec, rank, local_of(one->grad()));
    // Whole sequences run as before.
    EXPECT_TRUE(whole.attend().o.layout()->spec->replicated());
  });
}

TEST(DistributedOps, OneImplementationPerOp) {
  on_engine_mesh({2}, [](EngineRank& rank) {
    const Inputs inputs = make_inputs(rank, {"S(0)"}, {4, 1, 2, 3});
    EXPECT_EQ(to_string(*ops::mean(inputs.q).layout()->spec), "[P(sum)]");
    // With no role left for it, a mean of shards is taken of the whole.
    rank.engine.register_implementation({OpId::kMean, {}, nullptr});
    EXPECT_EQ(to_string(*ops::mean(inputs.q).layout()->spec), "[R]");
  });
}

}  // namespace
}  // namespace meshloom::test
