// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/memory.h"

#include <gtest/gtest.h>

#include "planner/dtensor_spec.h"
#include "planner/estimate/activations.h"
#include "planner/estimate/parameter_layout.h"
#include "tests/unit/planner/estimate/models.h"
#include "tests/unit/planner/estimate/traced.h"

namespace meshloom::planner {
namespace {

/// Elements on a rank by DTensorSpec, parameter by parameter. fsdp and cp are one dim.
std::int64_t elements_by_spec(const nn::ModelConfig& model, const MeshSizes& mesh,
                              const std::vector<int>& coordinates) {
  const auto layout = std::make_shared<const MeshLayout>(
      mesh_layout({mesh.dp, mesh.parameter_shards(), 1, mesh.tp}));
  std::int64_t sum = 0;
  const StyledModel all = styled_model(model, {.tensor_parallel = true}, mesh.tp);
  const auto add = [&](const std::vector<StyledModule>& modules, std::int64_t times) {
    for (const ModelParameter& p : parameters_of(modules)) {
      Placements placements(4, Placement::replicate());
      ShardOrder order;
      std::vector<DimOrderPtr> dim_orders(4);
      placements[1] = Placement::shard(0);
      const int dim = p.sharded_dim();
      if (dim >= 0) {
        placements[3] = Placement::shard(dim);
        dim_orders[3] = DimOrder::blocked(p.shape[dim], mesh.tp, p.groups, p.unit);
      }
      if (dim == 0) order = {{0, {3, 1}}};
      const DTensorSpec spec(layout, placements, p.shape, order, dim_orders);
      sum += times * numel(spec.local_shape(coordinates));
    }
  };
  add(all.before, 1);
  add(all.block, model.num_layers);
  add(all.after, 1);
  return sum;
}

TEST(Memory, HoldsTheElementsThatTheLayoutsGiveTheFullestRank) {
  for (const nn::ModelConfig& model :
       {testing::byte_gpt(), testing::small_llama(), testing::small_bert()}) {
    for (const MeshSizes mesh :
         {MeshSizes{1, 1, 1, 1}, MeshSizes{1, 2, 1, 2}, MeshSizes{1, 3, 1, 5},
          MeshSizes{2, 7, 1, 3}, MeshSizes{1, 2, 2, 1}, MeshSizes{2, 3, 2, 2},
          MeshSizes{1, 1, 4, 2}}) {
      const ParallelPlan plan{.tensor_parallel = true, .fully_shard = true};
      const LocalModel local = local_model(model, mesh, plan, {64, 1, 16});
      std::int64_t most = 0, sum = 0;
      for (int f = 0; f < mesh.parameter_shards(); ++f)
        for (int t = 0; t < mesh.tp; ++t)
          most = std::max(most, elements_by_spec(model, mesh, {0, f, 0, t}));
      EXPECT_EQ(local.all().sharded, most) << to_string(mesh);
      for (const ParameterLayout& p : parameter_layouts(model, mesh, plan, {0, 0, 0, 0}))
        sum += p.count * numel(p.local);
      EXPECT_EQ(sum, most) << to_string(mesh);
    }
  }
}

MemoryEstimate one_rank(const nn::ModelConfig& model, ActivationCheckpoint checkpointing,
                        DType dtype, std::int64_t batch, std::int64_t sequence) {
  const ParallelPlan plan{.checkpointing = checkpointing, .dtype = dtype};
  return estimate_memory(local_model(model, {}, plan, {batch, batch, sequence}));
}

struct Measured {
  nn::ModelConfig model;
  std::int64_t batch, sequence;
  ActivationCheckpoint checkpointing;
  DType dtype;
  std::int64_t allocator_peak;  ///< meshloom-bench train, allocator_peak_bytes
};

// What training on one rank took, on the CPU.
TEST(Memory, IsCloseToWhatTrainingTakes) {
  using enum ActivationCheckpoint;
  constexpr DType kF32 = DType::kFloat32, kBf16 = DType::kBFloat16;
  const Measured all[] = {
      {testing::gpt2_124m(), 1, 1024, kNone, kF32, 2089961024},
      {testing::gpt2_124m(), 1, 1024, kNone, kBf16, 2250152512},
      {testing::gpt2_124m(), 1, 1024, kFull, kF32, 2035052224},
      {testing::gpt2_124m(), 1, 1024, kFull, kBf16, 2254835264},
      {testing::gpt2_124m(), 1, 1024, kSelective, kF32, 2035052224},
      {testing::gpt2_124m(), 1, 1024, kSelective, kBf16, 2254835264},
      {testing::byte_gpt(), 12, 256, kNone, kF32, 460325056},
      {testing::byte_gpt(), 12, 256, kNone, kBf16, 321374016},
      {testing::byte_gpt(), 12, 256, kFull, kF32, 273326272},
      {testing::byte_gpt(), 12, 256, kFull, kBf16, 240643392},
      {testing::byte_gpt(), 12, 256, kSelective, kF32, 297287872},
      {testing::byte_gpt(), 12, 256, kSelective, kBf16, 240643392},
      {testing::small_llama(), 2, 512, kNone, kF32, 153244928},
  };
  for (const Measured& m : all) {
    const MemoryEstimate estimate =
        one_rank(m.model, m.checkpointing, m.dtype, m.batch, m.sequence);
    const double ratio =
        static_cast<double>(estimate.tensors()) / static_cast<double>(m.allocator_peak);
    EXPECT_NEAR(ratio, 1.0, 0.05) << "batch " << m.batch << " sequence " << m.sequence
                                  << " checkpointing " << static_cast<int>(m.checkpointing) << " "
                                  << dtype_name(m.dtype) << ": " << estimate.tensors();
  }
}

TEST(Memory, ActivationsOfOneGpt2LayerByHand) {
  // 1024 tokens of 768: two sums of the stream, q, k and v, attention's output, the MLP's 3072.
  const LocalModel local = local_model(testing::gpt2_124m(), {}, {}, {1, 1, 1024});
  const ActivationEstimate& a = local.activations;
  EXPECT_EQ(a.block, 1024 * 4 * (2 * 768 + 3 * 768 + 768 + 3072 + 4 + 12));
  EXPECT_EQ(a.boundary, 1024 * 4 * 2 * 768);
}

TEST(Memory, OutputLossOfADeviceTakesLargerPieces) {
  // 16384 rows of 50257 logits in float32, and gradients in bfloat16 beside them. The model is so
  // narrow that nothing else takes more.
  constexpr std::int64_t kRow = 50257 * 4;
  nn::ModelConfig narrow = testing::gpt2_124m();
  narrow.num_layers = narrow.num_heads = narrow.num_kv_heads = 1;
  narrow.hidden_size = narrow.head_dim = narrow.intermediate_size = 32;
  const auto activations = [&](DType dtype, DeviceKind device) {
    Workload work{16, 16, 1024};
    work.device = device;
    return local_model(narrow, {}, {.dtype = dtype}, work).activations.peak;
  };
  const auto more = [&](DType dtype) {
    return activations(dtype, DeviceKind::kCuda) - activations(dtype, DeviceKind::kCpu);
  };
  // 512 MiB hold 2670 rows: 7 pieces. On the host 52 MiB hold 271: 61 pieces.
  EXPECT_EQ(more(DType::kFloat32), (2341 - 269) * kRow);
  // On the host 40 MiB hold 417 rows of gradients: 40 blocks of 410; 24 MiB hold 125 of logits: 4
  // chunks of 103.
  EXPECT_EQ(more(DType::kBFloat16), (2341 - 103) * kRow + (2341 - 410) * kRow / 2);
}

TEST(Memory, ProductsOfADeviceMayTakeTheLibrarysWorkspace) {
  for (const std::int64_t sequence : {64, 1024}) {
    Workload work{1, 1, sequence};
    work.device = DeviceKind::kCuda;
    const LocalModel local =
        local_model(testing::gpt2_124m(), {}, {.dtype = DType::kBFloat16}, work);
    EXPECT_EQ(estimate_memory(local).workspace, 32 << 20) << "no scores lie in memory";
  }
}

TEST(Memory, RanksOfASequenceShareParametersWhereFsdpDoes) {
  const auto memory = [](const MeshSizes& mesh) {
    const ParallelPlan plan{.fully_shard = mesh.fsdp > 1};
    return estimate_memory(local_model(testing::gpt2_124m(), mesh, plan, {4, 1, 1024}));
  };
  const MemoryEstimate one = memory({}), two = memory({1, 2, 1, 1}), both = memory({1, 2, 2, 1});
  EXPECT_EQ(memory({1, 1, 2, 1}).parameters, one.parameters) << "without fsdp they are whole";
  EXPECT_NEAR(static_cast<double>(two.parameters), 0.5 * static_cast<double>(one.parameters), 1e6);
  EXPECT_NEAR(static_cast<double>(both.parameters), 0.25 * static_cast<double>(one.parameters),
              1e6);
  EXPECT_EQ(both.parameters, memory({1, 4, 1, 1}).parameters);
  EXPECT_EQ(both.optimizer, memory({1, 4, 1, 1}).optimizer);
}

TEST(Memory, StagesTheCallsOfAMeshWhole) {
  const auto local = [](const MeshSizes& mesh) {
    const ParallelPlan plan{.tensor_parallel = mesh.tp > 1, .fully_shard = mesh.fsdp > 1};
    return local_model(testing::gpt2_124m(), mesh, plan, {4, 1, 1024});
  };
  EXPECT_EQ(staged_bytes(local({})), 0);
  // All gradients are on their way at once.
  EXPECT_GE(staged_bytes(local({2, 1, 1, 1})), local({}).all().sharded * 4 * 5 / 4);
  // The gather of the root's parameters, and the reduction of their gradients.
  const UnitSize root = local({1, 2, 1, 1}).root;
  EXPECT_GE(staged_bytes(local({1, 2, 1, 1})), 5 * (root.gathered + root.shards) * 4 * 5 / 4);
  // Activations of 1024 tokens of 768, and keys and values of the other half of them.
  EXPECT_GE(staged_bytes(local({1, 1, 1, 2})), 2 * 1024 * 768 * 4 * 5 / 4);
  const std::int64_t sums = staged_bytes(local({2, 1, 1, 1}));
  EXPECT_GE(staged_bytes(local({1, 1, 2, 1})), sums + 2 * 512 * 2 * 768 * 4 * 5 / 4);
  EXPECT_EQ(estimate_memory(local({1, 1, 1, 2})).exchanged, 0);
  const MemoryEstimate sequence = estimate_memory(local({1, 1, 2, 1}));
  EXPECT_GT(sequence.exchanged, 0);
  EXPECT_LE(sequence.exchanged, 512 * 2 * 768 * 4) << "all that the other rank has";
  EXPECT_LT(sequence.exchanged, sequence.communication) << "sums of gradients are staged beside it";
  EXPECT_EQ(sequence.staged, 0) << "on a CPU";
}

TEST(Memory, ShardingAndCheckpointsOnlyTakeAway) {
  const nn::ModelConfig model = testing::llama3_8b();
  const Workload work{16, 1, 4096};
  const auto memory = [&](const MeshSizes& mesh, const ParallelPlan& plan) {
    return estimate_memory(local_model(model, mesh, plan, work));
  };
  const ParallelPlan none{.dtype = DType::kBFloat16};
  ParallelPlan sharded = none, tensor = none, sequence = none, full = none;
  sharded.fully_shard = true;
  tensor.tensor_parallel = true;
  sequence.tensor_parallel = sequence.sequence_parallel = true;
  full.checkpointing = ActivationCheckpoint::kFull;
  const std::int64_t whole = memory({8, 1, 1, 1}, none).total();
  EXPECT_LT(memory({1, 8, 1, 1}, sharded).total(), whole / 3);
  EXPECT_LT(memory({1, 1, 1, 8}, tensor).total(), whole / 3);
  full.tensor_parallel = sequence.tensor_parallel;
  full.sequence_parallel = sequence.sequence_parallel;
  tensor.checkpointing = ActivationCheckpoint::kFull;
  EXPECT_LT(memory({1, 1, 1, 8}, full).activations, memory({1, 1, 1, 8}, tensor).activations / 2);
  EXPECT_LT(memory({8, 1, 1, 1}, full).activations, memory({8, 1, 1, 1}, none).activations / 4);
  sharded.shards.reshard_after_forward = false;
  const MemoryEstimate kept = memory({1, 8, 1, 1}, sharded);
  EXPECT_GT(kept.gathered, model.num_layers * 200'000'000);
}

}  // namespace
}  // namespace meshloom::planner
