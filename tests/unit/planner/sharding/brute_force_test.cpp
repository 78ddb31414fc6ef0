// SPDX-License-Identifier: Apache-2.0
// Every rule against the op itself: each rank's local op on its shards, put together by the
// decision's layouts, must be the op on the whole tensors; the local gradients, put together by
// input_grads, must be its gradients. All placements on small 1-D meshes, random ones with shard
// orders and dim orders on 2-D meshes, sizes that divide by nothing.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <random>
#include <tuple>

#include "daemon/tensor/autograd/backward.h"
#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/reduce.h"
#include "kernels/base/error.h"
#include "planner/sharding/op_call.h"
#include "tests/support/random_rows.h"
#include "tests/support/random_tensor.h"
#include "tests/unit/planner/sharding/op_runner.h"
#include "tests/unit/planner/sharding/simulated_ranks.h"
#include "tests/unit/planner/sharding/vocabulary_runner.h"

namespace meshloom::test {
namespace {

using namespace planner;

enum class Values { kAny, kPositive, kIds, kMask, kNoGrad };

struct InputCase {
  Shape shape;
  Values values = Values::kAny;
  bool left_out = false;
};

struct OpCase {
  friend void PrintTo(const OpCase& c, std::ostream* out) { *out << c.name; }

  const char* name;
  OpId op;
  std::vector<InputCase> inputs;
  OpAttributes attributes = {};
  std::int64_t id_limit = 5;
  double tolerance = 1e-9;
};

OpAttributes with_ints(std::int64_t a, std::int64_t b = 0, std::int64_t c = 0, std::int64_t d = 0) {
  return {{}, {a, b, c, d}};
}

OpAttributes with_dims(Dims dims, std::int64_t a = 0, std::int64_t b = 0) {
  return {dims, {a, b, 0, 0}};
}

constexpr Values kIds = Values::kIds, kMask = Values::kMask, kPositive = Values::kPositive,
                 kNoGrad = Values::kNoGrad;

std::vector<OpCase> op_cases() {
  return {
      {"unary_linear", OpId::kUnaryLinear, {{{5, 3}}}},
      {"unary", OpId::kUnary, {{{5, 3}}}},
      {"add", OpId::kAdd, {{{5, 3}}, {{5, 3}}}},
      {"add_broadcast", OpId::kAdd, {{{5, 3}}, {{3}}}},
      {"add_outer", OpId::kAdd, {{{5, 1}}, {{1, 6}}}},
      {"mul", OpId::kMul, {{{5, 3}}, {{5, 1}}}},
      {"mul_scalar", OpId::kMul, {{{5, 3}}, {{}}}},
      {"div", OpId::kDiv, {{{5, 3}}, {{5, 3}, kPositive}}},
      {"where", OpId::kWhere, {{{5, 3}, kMask}, {{5, 3}}, {{3}}}},
      {"masked_fill", OpId::kMaskedFill, {{{5, 3}}, {{5, 1}, kMask}}},
      {"dropout", OpId::kDropout, {{{5, 3}}}},
      {"swiglu", OpId::kSwiglu, {{{5, 3}}, {{5, 3}}}},
      {"triu", OpId::kTri, {{{3, 5, 7}}}, with_ints(1, 1)},
      {"tril", OpId::kTri, {{{6, 5}}}, with_ints(-1, 0)},
      {"sum", OpId::kSum, {{{5, 3, 4}}}, with_dims({1})},
      {"sum_two", OpId::kSum, {{{5, 3, 4}}}, with_dims({0, 2}, 1)},
      {"sum_all", OpId::kSum, {{{5, 3}}}},
      {"mean", OpId::kMean, {{{5, 3, 4}}}, with_dims({0, 1})},
      {"mean_all", OpId::kMean, {{{5, 3}}}, with_dims({}, 1)},
      {"amax", OpId::kAmax, {{{5, 3, 4}}}, with_dims({1})},
      {"amax_no_grad", OpId::kAmax, {{{6, 3, 4}, kNoGrad}}, with_dims({0, 1}, 1, 1)},
      {"var", OpId::kVar, {{{5, 3, 4}}}, with_dims({1}, 1)},
      {"softmax", OpId::kSoftmax, {{{5, 3, 4}}}, with_ints(1)},
      {"log_softmax", OpId::kLogSoftmax, {{{5, 4}}}, with_ints(1)},
      {"norm", OpId::kNorm, {{{5, 3, 4}}, {{4}}, {{4}}}, with_ints(1)},
      {"norm_two_dims", OpId::kNorm, {{{5, 3, 4}}, {{3, 4}}, {{3, 4}}}, with_ints(2)},
      {"add_norm", OpId::kAddNorm, {{{5, 3, 4}}, {{5, 3, 4}}, {{4}}, {{4}}}},
      {"matmul", OpId::kMatmul, {{{5, 3}}, {{3, 6}}}},
      {"matmul_batched", OpId::kMatmul, {{{2, 5, 3}}, {{3, 6}}}},
      {"matmul_broadcast", OpId::kMatmul, {{{2, 1, 5, 3}}, {{3, 3, 4}}}},
      {"matmul_vectors", OpId::kMatmul, {{{5}}, {{5}}}},
      {"matmul_vector_left", OpId::kMatmul, {{{5}}, {{2, 5, 3}}}},
      {"matmul_vector_right", OpId::kMatmul, {{{2, 3, 5}}, {{5}}}},
      {"bmm", OpId::kBmm, {{{3, 5, 4}}, {{3, 4, 2}}}},
      {"addmm", OpId::kAddmm, {{{6}}, {{5, 3}}, {{3, 6}}}},
      {"addmm_full", OpId::kAddmm, {{{5, 1}}, {{5, 3}}, {{3, 6}}}},
      {"linear", OpId::kLinear, {{{2, 5, 3}}, {{7, 3}}, {{7}}}},
      {"linear_in_out", OpId::kLinear, {{{5, 3}}, {{3, 7}}, {{7}}}, with_ints(1)},
      {"linear_no_bias", OpId::kLinear, {{{5, 3}}, {{7, 3}}, {{}, Values::kAny, true}}},
      {"embedding", OpId::kEmbedding, {{{5, 3}}, {{4, 3}, kIds}}, with_ints(-1)},
      {"embedding_padding", OpId::kEmbedding, {{{7, 3}}, {{9}, kIds}}, with_ints(1), 7},
      {"cross_entropy_none", OpId::kCrossEntropy, {{{5, 6}}, {{5}, kIds}}, with_ints(0), 6, 1e-5},
      {"cross_entropy_mean", OpId::kCrossEntropy, {{{5, 6}}, {{5}, kIds}}, with_ints(1), 6, 1e-5},
      {"cross_entropy_sum",
       OpId::kCrossEntropy,
       {{{5, 6, 3}}, {{5, 3}, kIds}},
       with_ints(2),
       6,
       1e-5},
      {"linear_cross_entropy",
       OpId::kLinearCrossEntropy,
       {{{2, 5, 3}}, {{6, 3}}, {{6}}, {{2, 5}, kIds}},
       {},
       6,
       1e-5},
      {"linear_cross_entropy_weighted",
       OpId::kLinearCrossEntropy,
       {{{2, 5, 3}}, {{6, 3}}, {{6}}, {{2, 5}, kIds}, {{2, 5}, Values::kNoGrad}},
       with_ints(planner::kWeightedSum),
       6,
       1e-5},
      {"linear_token_losses",
       OpId::kLinearCrossEntropy,
       {{{2, 5, 3}}, {{6, 3}}, {{6}}, {{2, 5, 2}, kIds}},
       with_ints(planner::kTokenLosses),
       6,
       1e-5},
      {"attention",
       OpId::kAttention,
       {{{3, 4, 3, 2}}, {{3, 4, 3, 2}}, {{3, 4, 3, 2}}},
       {},
       5,
       1e-5},
      {"attention_grouped",
       OpId::kAttention,
       {{{2, 6, 3, 2}}, {{2, 3, 4, 2}}, {{2, 3, 4, 3}}},
       {},
       5,
       1e-5},
      {"attention_bias",
       OpId::kAttention,
       {{{3, 4, 3, 2}}, {{3, 2, 3, 2}}, {{3, 2, 3, 2}}, {{4, 1, 3}}, {{3, 3}, kIds}},
       {},
       2,
       1e-5},
      {"attention_of_rows",
       OpId::kAttentionRows,
       {{{2, 6, 1, 2}, kNoGrad},
        {{1, 3, 4, 2}, kNoGrad},
        {{1, 3, 4, 3}, kNoGrad},
        {{1, 3, 2, 2}, kNoGrad},
        {{1, 3, 2, 3}, kNoGrad}},
       {},
       5,
       1e-5},
      {"rope", OpId::kRope, {{{2, 3, 5, 4}}, {{9, 2}, kNoGrad}, {{9, 2}, kNoGrad}}, {}, 5, 1e-5},
      {"rope_positions",
       OpId::kRope,
       {{{2, 3, 5, 4}}, {{9, 2}, kNoGrad}, {{9, 2}, kNoGrad}, {{2, 5}, kIds}},
       {},
       9,
       1e-5},
      {"transpose", OpId::kTranspose, {{{5, 3, 4}}}, with_ints(0, 2)},
      {"permute", OpId::kPermute, {{{5, 3, 4}}}, with_dims({2, 0, 1})},
      {"reshape_split", OpId::kReshape, {{{5, 12}}}, with_dims({5, 6, 2})},
      {"reshape_heads", OpId::kReshape, {{{2, 3, 20}}}, with_dims({2, 3, 5, 4})},
      {"reshape_merge", OpId::kReshape, {{{2, 5, 6}}}, with_dims({10, 6})},
      {"reshape_merge_heads", OpId::kReshape, {{{2, 3, 5, 4}}}, with_dims({2, 3, 20})},
      {"reshape_flat", OpId::kReshape, {{{3, 4, 5}}}, with_dims({60})},
      {"reshape_regroup", OpId::kReshape, {{{6, 4}}}, with_dims({4, 6})},
      {"reshape_ones", OpId::kReshape, {{{1, 6, 1, 4}}}, with_dims({6, 1, 2, 2, 1})},
      {"reshape_three", OpId::kReshape, {{{2, 12, 3}}}, with_dims({2, 3, 2, 2, 3})},
      {"unsqueeze", OpId::kUnsqueeze, {{{5, 3}}}, with_ints(1)},
      {"squeeze", OpId::kSqueeze, {{{5, 1, 3}}}, with_ints(1)},
      {"squeeze_kept", OpId::kSqueeze, {{{4, 3}}}, with_ints(0)},
      {"slice", OpId::kSlice, {{{5, 7}}}, with_ints(1, 1, 6, 2)},
      {"slice_whole", OpId::kSlice, {{{5, 7}}}, with_ints(0, 0, 5, 1)},
      {"slice_third", OpId::kSlice, {{{2, 12}}}, with_ints(1, 4, 8, 1)},
      {"split", OpId::kSplit, {{{5, 12}}}, with_ints(4, 1)},
      {"split_uneven", OpId::kSplit, {{{7, 3}}}, with_ints(3, 0)},
      {"split_one", OpId::kSplit, {{{5, 3}}}, with_ints(9, 0)},
      {"cat", OpId::kCat, {{{5, 4}}, {{5, 4}}, {{5, 4}}}, with_ints(1)},
      {"cat_uneven", OpId::kCat, {{{5, 4}}, {{2, 4}}}, with_ints(0)},
      {"expand", OpId::kExpand, {{{5, 1, 3}}}, with_dims({2, 5, 4, 3})},
      {"contiguous", OpId::kContiguous, {{{5, 3}}}},
  };
}

class BruteForce : public testing::TestWithParam<OpCase> {
 protected:
  void SetUp() override {
    std::mt19937_64 rng(11);
    for (const InputCase& input : GetParam().inputs) globals_.push_back(make(input, rng));
    reference();
  }

  bool has_gradient(std::size_t i) const {
    const Values values = GetParam().inputs[i].values;
    return globals_[i].defined() && (values == Values::kAny || values == Values::kPositive);
  }

  Tensor make(const InputCase& input, std::mt19937_64& rng) {
    if (input.left_out) return {};
    switch (input.values) {
      case Values::kIds: return random_ids(context_, input.shape, rng, GetParam().id_limit);
      case Values::kMask: {
        Tensor mask = empty(context_, input.shape, DType::kBool);
        copy_into(mask, random_ids(context_, input.shape, rng, 2));
        return mask;
      }
      case Values::kPositive:
        return random_tensor(context_, input.shape, rng, DType::kFloat64, 0.5, 2.0);
      default: break;
    }
    const bool table = GetParam().op == OpId::kRope && input.values == Values::kNoGrad;
    return random_tensor(context_, input.shape, rng, table ? DType::kFloat32 : DType::kFloat64);
  }

  /// Outputs and gradients of the op on whole tensors.
  void reference() {
    const OpCase& c = GetParam();
    std::vector<Tensor> inputs;
    for (std::size_t i = 0; i < globals_.size(); ++i) {
      inputs.push_back(globals_[i] ? globals_[i].detach() : Tensor());
      if (has_gradient(i)) inputs[i].set_requires_grad(true);
    }
    outputs_ = run_op(c.op, inputs, c.attributes);
    std::mt19937_64 rng(12);
    for (const Tensor& y : outputs_) {
      const NoGradGuard guard(context_);
      output_grads_.push_back(random_tensor(context_, y.shape(), rng, y.dtype()));
    }
    run_backward(outputs_, output_grads_);
    for (std::size_t i = 0; i < inputs.size(); ++i)
      grads_.push_back(has_gradient(i) ? inputs[i].grad() : Tensor());
  }

  static void run_backward(const std::vector<Tensor>& outputs, const std::vector<Tensor>& grads) {
    std::vector<Tensor> ys, dys;
    for (std::size_t j = 0; j < outputs.size(); ++j) {
      if (!outputs[j].requires_grad()) continue;
      ys.push_back(outputs[j]);
      dys.push_back(grads[j]);
    }
    if (!ys.empty()) autograd::backward(ys, dys);
  }

  /// One rank: its outputs and its gradients, by the decision.
  void run_rank(const OpCall& call, const ShardingDecision& decision, const std::vector<int>& at,
                std::vector<std::vector<Tensor>>& outputs,
                std::vector<std::vector<Tensor>>& grads) {
    std::vector<Tensor> inputs;
    for (std::size_t i = 0; i < globals_.size(); ++i) {
      inputs.push_back(globals_[i] ? local_value(*decision.inputs[i], at, globals_[i]) : Tensor());
      if (has_gradient(i)) inputs[i].set_requires_grad(true);
    }
    const std::vector<Tensor> ys = needs_other_ranks(call, decision)
                                       ? run_vocabulary_op(call, decision, at, inputs, globals_)
                                       : run_local_op(call, decision, at, inputs);
    ASSERT_EQ(ys.size(), decision.outputs.size());
    std::vector<Tensor> dys;
    for (std::size_t j = 0; j < ys.size(); ++j) {
      outputs[j].push_back(ys[j].detach());
      ASSERT_EQ(ys[j].shape(), decision.outputs[j]->local_shape(at))
          << "output " << j << " under " << to_string(*decision.outputs[j]);
      dys.push_back(local_value(*without_partial(decision.outputs[j]), at, output_grads_[j]));
    }
    run_backward(ys, dys);
    const NoGradGuard guard(context_);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (!has_gradient(i)) continue;
      const Tensor grad = inputs[i].grad();
      grads[i].push_back(grad ? grad : zeros(context_, inputs[i].shape(), DType::kFloat64));
    }
  }

  void expect_whole(const char* what, std::size_t index, const DTensorSpec& spec,
                    const std::vector<Tensor>& locals, const Tensor& expected) {
    const double tolerance = GetParam().tolerance;
    std::vector<double> seen;
    ASSERT_TRUE(assemble(spec, locals, tolerance, seen)) << what << " " << index;
    const std::vector<double> wanted = expected.to_vector();
    ASSERT_EQ(seen.size(), wanted.size());
    for (std::size_t e = 0; e < seen.size(); ++e)
      ASSERT_TRUE(seen[e] == wanted[e] ||
                  std::abs(seen[e] - wanted[e]) <= tolerance * (1.0 + std::abs(wanted[e])))
          << what << " " << index << " element " << e << ": " << seen[e] << ", expected "
          << wanted[e] << " under " << to_string(spec);
  }

  bool needs_other_ranks(const OpCall& call, const ShardingDecision& decision) const {
    return call.op != OpId::kEmbedding &&
           (decision.has(MeshRole::kVocabulary) || decision.has(MeshRole::kLabels));
  }

  void check(const OpCall& call) {
    std::string text = GetParam().name;
    for (const SpecPtr& spec : call.inputs) text += spec ? " " + to_string(*spec) : " none";
    const std::optional<ShardingDecision> taken = propagate_or_refuse(call);
    if (!taken) return;
    const ShardingDecision& decision = *taken;
    text += " ->";
    for (const SpecPtr& spec : decision.inputs) text += spec ? " " + to_string(*spec) : " none";
    SCOPED_TRACE(text);
    check_changes(call, decision);
    const MeshLayout& mesh = decision.outputs[0]->mesh();
    std::vector<std::vector<Tensor>> outputs(decision.outputs.size()), grads(globals_.size());
    for (int rank = 0; rank < mesh.size(); ++rank)
      run_rank(call, decision, mesh.coordinates(rank), outputs, grads);
    if (HasFatalFailure()) return;
    for (std::size_t j = 0; j < outputs.size(); ++j)
      expect_whole("output", j, *decision.outputs[j], outputs[j], outputs_[j]);
    for (std::size_t i = 0; i < grads.size(); ++i)
      if (has_gradient(i))
        expect_whole("gradient", i, *decision.input_grads[i], grads[i], grads_[i]);
  }

  /// Nothing where sequence orders would be mixed.
  std::optional<ShardingDecision> propagate_or_refuse(const OpCall& call) {
    // The runners here implement every role but those of attention along its sequence, which need
    // all ranks at once.
    OpCall known = call;
    known.roles = planner::RoleSet::all().without(MeshRole::kSequence).without(MeshRole::kKeys);
    try {
      return propagate(known);
    } catch (const InvalidArgument& error) {
      int listed = 0;
      for (const SpecPtr& spec : call.inputs)
        if (spec && to_string(*spec).find("listed") != std::string::npos) ++listed;
      EXPECT_GT(listed, 0) << error.what();
      EXPECT_NE(std::string(error.what()).find("different orders"), std::string::npos);
      return std::nullopt;
    }
  }

  /// Inputs become Partial only from Partial; gradients follow the contract of propagate.h.
  void check_changes(const OpCall& call, const ShardingDecision& decision) {
    for (std::size_t i = 0; i < call.inputs.size(); ++i) {
      if (call.inputs[i] == nullptr) {
        ASSERT_EQ(decision.inputs[i], nullptr);
        continue;
      }
      for (int m = 0; m < call.inputs[i]->mesh().ndim(); ++m) {
        const Placement &from = call.inputs[i]->placement(m),
                        &to = decision.inputs[i]->placement(m);
        const Placement& grad = decision.input_grads[i]->placement(m);
        ASSERT_TRUE(!to.is_partial() || (from.is_partial() && grad.is_replicate()));
        ASSERT_TRUE(!to.is_shard() || grad == to);
        ASSERT_TRUE(!to.is_replicate() || !grad.is_shard());
      }
    }
  }

  ExecutionContext context_;
  std::vector<Tensor> globals_, outputs_, output_grads_, grads_;
};

Placements placement_options(const InputCase& input) {
  Placements options{Placement::replicate()};
  for (int d = 0; d < input.shape.size(); ++d) options.push_back(Placement::shard(d));
  if (input.values == Values::kIds || input.values == Values::kMask) return options;
  for (const PartialOp op : {PartialOp::kSum, PartialOp::kAvg, PartialOp::kMax, PartialOp::kMin})
    options.push_back(Placement::partial_of(op));
  return options;
}

MeshPtr make_mesh(std::vector<int> sizes) {
  std::vector<MeshDim> dims;
  for (const int size : sizes) dims.push_back({"", size});
  return std::make_shared<MeshLayout>(dims);
}

/// Every choice of a placement per input; of very many, kMostChoices drawn at random, so that each
/// placement of each input stays in.
std::vector<Placements> placement_choices(const OpCase& c, std::mt19937_64& rng) {
  constexpr std::size_t kMostChoices = 800;
  std::vector<Placements> choices{{}};
  for (const InputCase& input : c.inputs) {
    const Placements options =
        input.left_out ? Placements{Placement::replicate()} : placement_options(input);
    std::vector<Placements> longer;
    for (const Placements& choice : choices)
      for (const Placement& placement : options) {
        longer.push_back(choice);
        longer.back().push_back(placement);
      }
    choices = std::move(longer);
  }
  if (choices.size() <= kMostChoices) return choices;
  std::shuffle(choices.begin(), choices.end(), rng);
  choices.resize(kMostChoices);
  return choices;
}

TEST_P(BruteForce, EveryPlacementOnOneMeshDim) {
  const OpCase& c = GetParam();
  std::mt19937_64 rng(5);
  for (const int ranks : {2, 3, 4}) {
    const MeshPtr mesh = make_mesh({ranks});
    for (const Placements& choice : placement_choices(c, rng)) {
      OpCall call{c.op, std::vector<SpecPtr>(c.inputs.size()), c.attributes};
      for (std::size_t i = 0; i < choice.size(); ++i)
        if (!c.inputs[i].left_out)
          call.inputs[i] =
              std::make_shared<DTensorSpec>(mesh, Placements{choice[i]}, c.inputs[i].shape);
      check(call);
      if (HasFatalFailure()) return;
    }
  }
}

/// Every element to a part drawn at random.
DimOrderPtr random_listed(std::int64_t size, int parts, std::mt19937_64& rng) {
  std::vector<IndexRanges> ranges(static_cast<std::size_t>(parts));
  for (std::int64_t i = 0; i < size; ++i)
    ranges[rng() % static_cast<std::uint64_t>(parts)].push_back({i, i + 1});
  return DimOrder::listed(size, std::move(ranges));
}

/// A shard by rows; often the same as before for these sizes, so that inputs go together.
DimOrderPtr random_by_row(std::int64_t size, int parts, int row_dim, std::int64_t rows,
                          std::mt19937_64& rng) {
  static thread_local std::map<std::tuple<std::int64_t, int, std::int64_t>,
                               std::vector<std::vector<IndexRanges>>>
      drawn;
  auto& lists = drawn[{size, parts, rows}];
  if (lists.empty() || rng() % 4 == 0) lists = random_rows(rng, size, parts, rows);
  return DimOrder::listed_by_row(size, row_dim, lists);
}

/// Sometimes another order of the same shardings, sometimes another sharding of the first of them.
SpecPtr random_spec(const MeshPtr& mesh, const InputCase& input, bool listed,
                    std::mt19937_64& rng) {
  Placements placements;
  const Placements options = placement_options(input);
  // max and min do not mix with other Partial kinds.
  for (int m = 0; m < mesh->ndim(); ++m) {
    Placement placement = options[rng() % options.size()];
    for (const Placement& other : placements)
      if (placement.is_partial() && other.is_partial()) placement = other;
    placements.push_back(placement);
  }
  ShardOrder order;
  std::vector<DimOrderPtr> dim_orders(placements.size());
  bool any = false;
  for (int d = 0; d < input.shape.size(); ++d) {
    std::vector<int> sharding_dims;
    for (int m = 0; m < mesh->ndim(); ++m)
      if (placements[static_cast<std::size_t>(m)] == Placement::shard(d))
        sharding_dims.push_back(m);
    if (sharding_dims.empty()) continue;
    std::shuffle(sharding_dims.begin(), sharding_dims.end(), rng);
    order.push_back({d, sharding_dims});
    if (rng() % 3 != 0 || input.shape[d] == 0) continue;
    std::vector<std::int64_t> divisors;
    for (std::int64_t g = 1; g <= input.shape[d]; ++g)
      if (input.shape[d] % g == 0) divisors.push_back(g);
    const auto groups = static_cast<int>(divisors[rng() % divisors.size()]);
    any = true;
    const int row_dim = static_cast<int>(rng() % static_cast<std::uint64_t>(input.shape.size()));
    if (listed && rng() % 2 == 0 && input.shape[row_dim] > 0 &&
        may_order_by_rows(placements, dim_orders, d, row_dim)) {
      const int parts = mesh->dim_size(sharding_dims[0]);
      if (parts > 1)
        dim_orders[static_cast<std::size_t>(sharding_dims[0])] =
            random_by_row(input.shape[d], parts, row_dim, input.shape[row_dim], rng);
      continue;
    }
    if (listed && rng() % 2 == 0 && mesh->dim_size(sharding_dims[0]) > 1) {
      dim_orders[static_cast<std::size_t>(sharding_dims[0])] =
          random_listed(input.shape[d], mesh->dim_size(sharding_dims[0]), rng);
      continue;
    }
    dim_orders[static_cast<std::size_t>(sharding_dims[0])] = DimOrder::blocked(
        input.shape[d], mesh->dim_size(sharding_dims[0]), groups, 1 + static_cast<int>(rng() % 3));
  }
  if (!any) dim_orders.clear();
  return std::make_shared<DTensorSpec>(mesh, placements, input.shape, order, dim_orders);
}

TEST_P(BruteForce, RandomLayoutsOnTwoMeshDims) {
  const OpCase& c = GetParam();
  std::mt19937_64 rng(17);
  for (const std::vector<int>& sizes :
       {std::vector<int>{2, 2}, {2, 3}, {3, 2}, {1, 4}, {4}, {2, 2, 2}}) {
    const MeshPtr mesh = make_mesh(sizes);
    for (int draw = 0; draw < 60; ++draw) {
      OpCall call{c.op, {}, c.attributes};
      for (const InputCase& input : c.inputs)
        call.inputs.push_back(input.left_out ? nullptr
                                             : random_spec(mesh, input, draw % 2 == 0, rng));
      check(call);
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, BruteForce, testing::ValuesIn(op_cases()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace meshloom::test
