// SPDX-License-Identifier: Apache-2.0
// Attention of one head on ranks that are threads, put together from their parts.
#pragma once

#include <cmath>
#include <mutex>
#include <random>

#include "daemon/dtensor/api/from_local.h"
#include "daemon/parallel/context_parallel/context_attention.h"
#include "daemon/tensor/autograd/backward.h"
#include "daemon/tensor/ops/attention.h"
#include "planner/attention/balance.h"
#include "tests/support/exact_attention.h"
#include "tests/support/test_context.h"
#include "tests/unit/dtensor/engine_rank.h"
#include "tests/unit/dtensor/global_values.h"

namespace meshloom::test {

/// Normal values as `dtype` holds them.
inline testing::AttentionHead random_head(std::int64_t length, std::int64_t dims,
                                          std::int64_t dims_v, DType dtype, std::uint64_t seed) {
  testing::TestContext context;
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  const auto draw = [&](std::int64_t size) {
    std::vector<double> values(static_cast<std::size_t>(size));
    for (double& value : values) value = normal(random);
    return from_values(context, {size}, values, dtype).to_vector();
  };
  testing::AttentionHead head{.length = length, .dims = dims, .dims_v = dims_v};
  head.q = draw(length * dims);
  head.k = draw(length * dims);
  head.v = draw(length * dims_v);
  head.grad_o = draw(length * dims_v);
  return head;
}

/// Machine epsilon.
inline double epsilon_of(DType dtype) {
  return std::pow(2.0, dtype == DType::kBFloat16 ? -7 : -23);
}

/// What a rank holds of [S,E] values of a tensor [1,1,S,E].
class HeadPart {
 public:
  HeadPart(EngineRank& rank, std::int64_t length, std::int64_t width,
           const planner::DimOrderPtr& order)
      : rank_(rank),
        spec_(
            rank.engine.intern(make_spec(rank.mesh, {"S(2)"}, {1, 1, length, width}, {}, {order}))),
        indices_(held_indices(*spec_, rank.mesh.coordinates())) {}

  Tensor local(const std::vector<double>& whole, DType dtype) const {
    std::vector<double> held;
    for (const std::int64_t index : indices_)
      held.push_back(whole[static_cast<std::size_t>(index)]);
    return from_values(rank_.context, spec_->local_shape(rank_.mesh.coordinates()), held, dtype);
  }
  Tensor global(const Tensor& local) const {
    return dtensor::from_local(local, rank_.engine, spec_);
  }
  void put(const Tensor& local, std::vector<double>& whole) const {
    const std::vector<double> held = local.to_vector();
    for (std::size_t i = 0; i < indices_.size(); ++i)
      whole[static_cast<std::size_t>(indices_[i])] = held[i];
  }

 private:
  EngineRank& rank_;
  SpecPtr spec_;
  std::vector<std::int64_t> indices_;
};

/// Runs the head on `ranks` ranks; 0: on one, by the flash kernel alone.
inline testing::AttentionResults run_head(const testing::AttentionHead& head, DType dtype,
                                          int ranks, const planner::ContextParallelPlan& plan) {
  testing::AttentionResults results{head.grad_o,
                                    std::vector<double>(static_cast<std::size_t>(head.length)),
                                    head.q, head.k, head.v};
  std::mutex mutex;
  on_engine_mesh({std::max(1, ranks)}, [&](EngineRank& rank) {
    const planner::RowMask mask{{.is_causal = head.is_causal}, nullptr};
    const auto order =
        planner::balanced_order(plan.load_balancer, head.length, std::max(1, ranks), 0, {mask});
    const HeadPart keys(rank, head.length, head.dims, order);
    const HeadPart values(rank, head.length, head.dims_v, order);
    const HeadPart rows(rank, head.length, 1, order);
    if (ranks > 0) parallel::enable_context_parallel(rank.engine, plan);
    const auto leaf = [&](const HeadPart& part, const std::vector<double>& whole) {
      return part.local(whole, dtype).set_requires_grad(true);
    };
    const Tensor q = leaf(keys, head.q), k = leaf(keys, head.k), v = leaf(values, head.v);
    ops::SdpaOptions options;
    options.is_causal = head.is_causal;
    // It hides nothing, but with it a single query goes through the tiles too, which add otherwise
    // than what attends to one query.
    options.window_left = head.length;
    const ops::SdpaResult result =
        ranks > 0 ? ops::scaled_dot_product_attention(keys.global(q), keys.global(k),
                                                      values.global(v), options)
                  : ops::scaled_dot_product_attention(q, k, v, options);
    const Tensor outputs[] = {local_of(result.o)};
    const Tensor incoming[] = {values.local(head.grad_o, dtype)};
    autograd::backward(outputs, incoming);
    const std::lock_guard lock(mutex);
    values.put(outputs[0], results.o);
    rows.put(local_of(result.lse), results.lse);
    keys.put(q.grad(), results.dq);
    keys.put(k.grad(), results.dk);
    values.put(v.grad(), results.dv);
  });
  return results;
}

/// One head, or of short ones four: the mean over a few hundred values would be chance.
inline std::vector<testing::AttentionHead> random_heads(std::int64_t length, std::int64_t dims,
                                                        std::int64_t dims_v, DType dtype,
                                                        std::uint64_t seed) {
  std::vector<testing::AttentionHead> heads;
  for (std::uint64_t h = 0; h < (length < 100 ? 4 : 1); ++h)
    heads.push_back(random_head(length, dims, dims_v, dtype, seed + h));
  return heads;
}

/// What `results_of` gives of each head, one behind the other.
template <typename ResultsOf>
testing::AttentionResults join_heads(const std::vector<testing::AttentionHead>& heads,
                                     const ResultsOf& results_of) {
  testing::AttentionResults all;
  const auto append = [](std::vector<double>& to, const std::vector<double>& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  for (const testing::AttentionHead& head : heads) {
    const testing::AttentionResults of_head = results_of(head);
    append(all.o, of_head.o);
    append(all.lse, of_head.lse);
    append(all.dq, of_head.dq);
    append(all.dk, of_head.dk);
    append(all.dv, of_head.dv);
  }
  return all;
}

/// Returns the largest shares of O, lse, dQ, dK and dV.
inline testing::ErrorShare worst_share(const testing::AttentionResults& seen,
                                       const testing::AttentionResults& one_rank,
                                       const testing::AttentionResults& exact, DType dtype) {
  testing::ErrorShare worst;
  const auto add = [&](const auto& a, const auto& b, const auto& c, DType of) {
    const testing::ErrorShare share = testing::error_share(a, b, c, epsilon_of(of));
    worst = {std::max(worst.rms, share.rms), std::max(worst.largest, share.largest)};
  };
  add(seen.o, one_rank.o, exact.o, dtype);
  add(seen.lse, one_rank.lse, exact.lse, DType::kFloat32);
  add(seen.dq, one_rank.dq, exact.dq, dtype);
  add(seen.dk, one_rank.dk, exact.dk, dtype);
  add(seen.dv, one_rank.dv, exact.dv, dtype);
  return worst;
}

}  // namespace meshloom::test
