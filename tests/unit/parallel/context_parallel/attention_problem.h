// SPDX-License-Identifier: Apache-2.0
// Calls of attention whose inputs are known whole: on one rank, and on ranks that share the
// sequence.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "daemon/dtensor/api/from_local.h"
#include "daemon/parallel/context_parallel/context_attention.h"
#include "daemon/tensor/autograd/backward.h"
#include "daemon/tensor/ops/attention.h"
#include "planner/attention/balance.h"
#include "tests/unit/dtensor/engine_rank.h"
#include "tests/unit/dtensor/global_values.h"
#include "tests/unit/planner/attention/random_rows.h"

namespace meshloom::test {

/// One call of attention with its inputs, whole.
struct Problem {
  Shape q, k, v, bias;                   ///< bias empty: none
  std::vector<double> bias_values = {};  ///< empty: drawn
  std::vector<std::int64_t> documents;
  ops::SdpaOptions options;
  DType dtype = DType::kFloat32;
  planner::ContextParallelPlan plan;
  std::uint64_t seed = 0;
};

inline Tensor random_tensor(ExecutionContext& context, const Shape& shape, DType dtype,
                            std::uint64_t seed) {
  planner::test::Generator generator(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(static_cast<std::size_t>(numel(shape)));
  for (double& value : values) value = normal(generator);
  return from_values(context, shape, values, dtype);
}

struct Results {
  std::map<std::string, std::vector<double>> values;  ///< local parts in their order
  std::map<std::string, SpecPtr> specs;
};

inline planner::AttentionMask mask_of(const Problem& p) {
  const std::int64_t shift = p.options.causal_bottom_right ? p.k[2] - p.q[2] : 0;
  return {p.options.is_causal, shift, p.options.window_left, p.options.window_right};
}

/// The order of each sequence, and what every rank holds.
struct Layouts {
  planner::DimOrderPtr queries, keys;

  Layouts(const Problem& p, int ranks) {
    std::vector<planner::RowMask> rows(static_cast<std::size_t>(p.q[0]), {mask_of(p), nullptr});
    for (std::size_t b = 0; !p.documents.empty() && b < rows.size(); ++b)
      rows[b].documents = std::make_shared<const planner::SequenceDocuments>(
          std::span(p.documents)
              .subspan(b * static_cast<std::size_t>(p.q[2]), static_cast<std::size_t>(p.q[2])));
    queries = planner::balanced_order(p.plan.load_balancer, p.q[2], ranks, 0, rows);
    keys = planner::balanced_order(p.plan.load_balancer, p.k[2], ranks, 0, rows);
  }
};

/// `ranks` 0: the whole on one rank, without a layout.
inline Results run_attention(EngineRank& rank, const Problem& p, int ranks) {
  Results results;
  const Layouts layouts(p, std::max(1, ranks));
  std::map<std::string, Tensor> leaves;
  const auto make = [&](const std::string& name, const Shape& shape, DType dtype, const char* text,
                        const planner::DimOrderPtr& order) {
    Tensor whole =
        name == "bias" && !p.bias_values.empty()
            ? from_values(rank.context, shape, p.bias_values, dtype)
            : random_tensor(rank.context, shape, dtype, p.seed + std::hash<std::string>()(name));
    if (ranks == 0) {
      leaves[name] = whole;
      whole.set_requires_grad(true);
      return whole;
    }
    const bool sharded = std::string(text) != "R";
    const SpecPtr spec = rank.engine.intern(
        make_spec(rank.mesh, {text}, shape, {}, {sharded ? order : planner::DimOrderPtr()}));
    results.specs["grad." + name] = spec;
    const std::vector<double> all = whole.to_vector();
    std::vector<double> held;
    for (const std::int64_t index : held_indices(*spec, rank.mesh.coordinates()))
      held.push_back(all[static_cast<std::size_t>(index)]);
    Tensor local =
        from_values(rank.context, spec->local_shape(rank.mesh.coordinates()), held, dtype);
    local.set_requires_grad(true);
    leaves[name] = local;
    return dtensor::from_local(local, rank.engine, spec);
  };
  const Tensor q = make("q", p.q, p.dtype, "S(2)", layouts.queries);
  const Tensor k = make("k", p.k, p.dtype, "S(2)", layouts.keys);
  const Tensor v = make("v", p.v, p.dtype, "S(2)", layouts.keys);
  ops::SdpaOptions options = p.options;
  if (!p.bias.empty()) {
    const bool by_query = p.bias[2] == p.q[2] && p.q[2] != 1;
    options.bias = make("bias", p.bias, DType::kFloat32, by_query ? "S(2)" : "R", layouts.queries);
  }
  if (!p.documents.empty()) {
    const Tensor ids =
        from_values(rank.context, {p.q[0], p.q[2]}, std::span<const std::int64_t>(p.documents));
    options.document_ids =
        ranks == 0
            ? ids
            : dtensor::from_local(ids, rank.engine,
                                  rank.engine.intern(make_spec(rank.mesh, {"R"}, ids.shape())));
  }
  const ops::SdpaResult result = ops::scaled_dot_product_attention(q, k, v, options);
  const auto store = [&](const std::string& name, const Tensor& x) {
    results.values[name] = local_of(x).to_vector();
    if (x.has_layout()) results.specs[name] = x.layout()->spec;
  };
  store("o", result.o);
  store("lse", result.lse);
  const Shape o{p.q[0], p.q[1], p.q[2], p.v[3]};
  const std::vector<double> grads =
      random_tensor(rank.context, o, p.dtype, p.seed + 77).to_vector();
  std::vector<double> held = grads;
  if (ranks > 0) {
    held.clear();
    for (const std::int64_t index : held_indices(*result.o.layout()->spec, rank.mesh.coordinates()))
      held.push_back(grads[static_cast<std::size_t>(index)]);
  }
  const Tensor outputs[] = {local_of(result.o)};
  const Tensor incoming[] = {from_values(rank.context, outputs[0].shape(), held, p.dtype)};
  autograd::backward(outputs, incoming);
  for (const auto& [name, leaf] : leaves) {
    Tensor grad = leaf.grad();
    if (!grad) grad = zeros(rank.context, leaf.shape(), DType::kFloat32);
    results.values["grad." + name] = grad.to_vector();
  }
  return results;
}

inline void expect_part(const Results& parts, const Results& whole, EngineRank& rank,
                        double tolerance) {
  for (const auto& [name, seen] : parts.values) {
    const auto indices = held_indices(*parts.specs.at(name), rank.mesh.coordinates());
    const std::vector<double>& all = whole.values.at(name);
    ASSERT_EQ(seen.size(), indices.size()) << name;
    for (std::size_t i = 0; i < seen.size(); ++i) {
      const double wanted = all[static_cast<std::size_t>(indices[i])];
      if (seen[i] == wanted) continue;  // both -inf
      ASSERT_NEAR(seen[i], wanted, tolerance * (1.0 + std::abs(wanted))) << name << " " << i;
    }
  }
}

}  // namespace meshloom::test
