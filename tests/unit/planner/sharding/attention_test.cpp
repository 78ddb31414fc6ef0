// SPDX-License-Identifier: Apache-2.0
// In which layouts attention runs: heads, sequences, and keys that stay where they are.
#include "tests/unit/planner/sharding/propagation.h"

namespace meshloom::planner {
namespace {

using testing::free_of_messages;
using testing::make_mesh;
using testing::spec;

TEST(AttentionLayouts, GroupedHeadsAreShardedAlikeWhereTheyFit) {
  const MeshPtr mesh = make_mesh({2});
  const SpecPtr q = spec(mesh, {1, 8, 4, 2}, {"S(1)"});
  const SpecPtr kv = spec(mesh, {1, 4, 4, 2}, {"S(1)"});
  const ShardingDecision alike = free_of_messages({OpId::kAttention, {q, kv, kv}, {}});
  EXPECT_EQ(*alike.outputs[0], *q);
  const SpecPtr whole = spec(mesh, {1, 1, 4, 2}, {"R"});
  const OpCall call{OpId::kAttention, {q, whole, whole}, {}};
  const ShardingDecision shared = free_of_messages(call);
  EXPECT_EQ(to_string(shared.input_grads[1]->placement(0)), "P(sum)");
  EXPECT_EQ(local_attributes(call, shared, {1}).dims, (Dims{0, 4, 0, 8, 8, 4, 4}));
}

TEST(AttentionLayouts, FewKeyHeadsDoNotIdleRanks) {
  const MeshPtr mesh = make_mesh({4});
  const SpecPtr q = spec(mesh, {2, 8, 512, 64}, {"S(1)"});
  const SpecPtr kv = spec(mesh, {2, 2, 512, 64}, {"S(1)"});
  const ShardingDecision decision = propagate({OpId::kAttention, {q, kv, kv}, {}});
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_GT(numel(decision.outputs[0]->local_shape({rank})), 0);
}

TEST(AttentionLayouts, AttentionRunsOnWholeSequences) {
  const MeshPtr mesh = make_mesh({2});
  const SpecPtr q = spec(mesh, {1, 8, 4, 2}, {"S(2)"});
  const ShardingDecision decision =
      propagate({OpId::kAttention, {q, q, q}, {}, RoleSet::all().without(MeshRole::kSequence)});
  for (const SpecPtr& input : decision.inputs) EXPECT_NE(input->placement(0), Placement::shard(2));
  EXPECT_TRUE(decision.roles.empty());
}

TEST(AttentionLayouts, AttentionKeepsASequenceThatAnImplementationTakes) {
  const MeshPtr mesh = make_mesh({2, 2});
  const Shape shape{1, 8, 6, 2};
  const SpecPtr q = spec(mesh, shape, {"S(1)", "S(2)"});
  const SpecPtr bias = spec(mesh, {6, 6}, {"R", "S(0)"}),
                documents = spec(mesh, {1, 6}, {"R", "R"});
  const ShardingDecision decision =
      free_of_messages({OpId::kAttention, {q, q, q, bias, documents}, {}});
  EXPECT_EQ(decision.mesh_dims(MeshRole::kSequence), std::vector<int>{1});
  EXPECT_EQ(*decision.outputs[0], *q);
  EXPECT_EQ(to_string(decision.outputs[1]->placements()), "[S(1), S(2)]");
  // A rank has its rows of the bias, and its heads' share of their gradient.
  EXPECT_EQ(to_string(decision.input_grads[3]->placements()), "[P(sum), S(0)]");
  // Positions that were permuted for balance stay where they are.
  const SpecPtr zigzag =
      spec(mesh, shape, {"S(2)", "S(1)"}, DimOrder::listed(6, {{{0, 1}, {4, 6}}, {{1, 4}}}));
  const ShardingDecision balanced =
      free_of_messages({OpId::kAttention, {zigzag, zigzag, zigzag}, {}});
  EXPECT_EQ(*balanced.outputs[0], *zigzag);
  // Queries of one sequence see the keys of another whole, and have a share of their gradient.
  const SpecPtr keys = spec(mesh, {1, 8, 4, 2}, {"S(1)", "R"});
  const ShardingDecision crossed = free_of_messages({OpId::kAttention, {q, keys, keys}, {}});
  EXPECT_EQ(crossed.mesh_dims(MeshRole::kSequence), std::vector<int>{1});
  EXPECT_EQ(to_string(crossed.input_grads[1]->placements()), "[S(1), P(sum)]");
}

TEST(AttentionLayouts, SequencesOfTwoLengthsKeepTheirOwnOrders) {
  const MeshPtr mesh = make_mesh({2, 2});
  const SpecPtr q =
      spec(mesh, {1, 8, 3, 2}, {"S(2)", "S(1)"}, DimOrder::listed(3, {{{1, 2}}, {{0, 1}, {2, 3}}}));
  const SpecPtr k =
      spec(mesh, {1, 4, 6, 2}, {"S(2)", "S(1)"}, DimOrder::listed(6, {{{0, 1}, {4, 6}}, {{1, 4}}}));
  for (const std::int64_t without_gradient : {0, 1}) {
    const ShardingDecision decision =
        free_of_messages({OpId::kAttention, {q, k, k}, {{}, {without_gradient}}});
    EXPECT_EQ(decision.mesh_dims(MeshRole::kSequence), std::vector<int>{0});
    EXPECT_EQ(*decision.inputs[0], *q);
    EXPECT_EQ(*decision.inputs[1], *k);
    EXPECT_EQ(*decision.outputs[0], *q);
    EXPECT_EQ(*decision.input_grads[1], *k);
  }
  // Keys over another mesh dim than the queries do not go with them.
  const SpecPtr elsewhere = spec(mesh, {1, 4, 6, 2}, {"R", "S(2)"});
  const SpecPtr queries = spec(mesh, {1, 8, 3, 2}, {"S(2)", "R"});
  const ShardingDecision gathered =
      propagate({OpId::kAttention, {queries, elsewhere, elsewhere}, {}});
  EXPECT_NE(gathered.inputs[1]->placement(1), Placement::shard(2));
}

TEST(AttentionLayouts, RowsSeeTheirKeysWhereTheyAre) {
  const MeshPtr mesh = make_mesh({2, 2});
  const SpecPtr q = spec(mesh, {2, 8, 1, 2}, {"R", "S(1)"});
  const SpecPtr one =
      spec(mesh, {1, 4, 6, 2}, {"S(2)", "S(1)"}, DimOrder::listed(6, {{{0, 1}, {4, 6}}, {{1, 4}}}));
  const SpecPtr other =
      spec(mesh, {1, 4, 3, 2}, {"S(2)", "S(1)"}, DimOrder::listed(3, {{{0, 3}}, {}}));
  const OpCall call{OpId::kAttentionRows, {q, one, one, other, other}, {}};
  const ShardingDecision decision = free_of_messages(call);
  EXPECT_EQ(decision.mesh_dims(MeshRole::kKeys), std::vector<int>{0});
  EXPECT_EQ(*decision.inputs[1], *one);
  EXPECT_EQ(*decision.inputs[3], *other);
  EXPECT_EQ(to_string(decision.outputs[0]->placements()), "[R, S(1)]");
  EXPECT_EQ(local_attributes(call, decision, {0, 1}).dims, (Dims{0, 4, 2, 8, 2, 1, 6}));
  // Without an implementation the keys become whole, and where a row's lie elsewhere.
  OpCall plain = call;
  plain.roles = RoleSet::all().without(MeshRole::kKeys);
  EXPECT_NE(propagate(plain).inputs[1]->placement(0), Placement::shard(2));
  const SpecPtr whole = spec(mesh, {1, 4, 3, 2}, {"R", "S(1)"});
  const ShardingDecision mixed = propagate({OpId::kAttentionRows, {q, one, one, whole, whole}, {}});
  EXPECT_TRUE(mixed.roles.empty());
  EXPECT_NE(mixed.inputs[1]->placement(0), Placement::shard(2));
}

TEST(AttentionLayouts, QueriesThatAreWholeSeeKeysWhereTheyAre) {
  const MeshPtr mesh = make_mesh({2, 2});
  const SpecPtr q = spec(mesh, {1, 8, 1, 2}, {"R", "S(1)"});
  const SpecPtr k =
      spec(mesh, {1, 4, 6, 2}, {"S(2)", "S(1)"}, DimOrder::listed(6, {{{0, 1}, {4, 6}}, {{1, 4}}}));
  const OpAttributes without_gradient{{}, {1}};
  const ShardingDecision decision =
      free_of_messages({OpId::kAttention, {q, k, k}, without_gradient});
  EXPECT_EQ(decision.mesh_dims(MeshRole::kKeys), std::vector<int>{0});
  EXPECT_EQ(*decision.inputs[1], *k);
  EXPECT_EQ(to_string(decision.outputs[0]->placements()), "[R, S(1)]");
  // Of one sequence too: queries that were whole stay so.
  const SpecPtr all = spec(mesh, {1, 8, 6, 2}, {"R", "S(1)"});
  EXPECT_EQ(free_of_messages({OpId::kAttention, {all, k, k}, without_gradient})
                .mesh_dims(MeshRole::kKeys),
            std::vector<int>{0});
  // With a gradient, a bias, or no implementation, the keys become whole.
  const SpecPtr bias = spec(mesh, {1, 6}, {"R", "R"});
  for (const OpCall& call : {OpCall{OpId::kAttention, {q, k, k}, {}},
                             OpCall{OpId::kAttention, {q, k, k, bias}, without_gradient},
                             OpCall{OpId::kAttention,
                                    {q, k, k},
                                    without_gradient,
                                    RoleSet::all().without(MeshRole::kKeys)}}) {
    const ShardingDecision gathered = propagate(call);
    EXPECT_TRUE(gathered.mesh_dims(MeshRole::kKeys).empty());
    EXPECT_NE(gathered.inputs[1]->placement(0), Placement::shard(2));
  }
}

}  // namespace
}  // namespace meshloom::planner
