// SPDX-License-Identifier: Apache-2.0
// Sequences too long to be attended to at once: results of blocks of keys are merged. Against
// attention of every pair of a query and a key in float64.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/base/philox.h"
#include "tests/support/test_context.h"
#include "tests/unit/parallel/context_parallel/attention_problem.h"

namespace meshloom::test {
namespace {

using planner::LoadBalancer;
using planner::Rotate;

constexpr double kHidden = -std::numeric_limits<double>::infinity();

/// The inputs of a problem as run_attention draws them.
std::vector<double> values_of(const Problem& p, const std::string& name, const Shape& shape,
                              DType dtype) {
  if (name == "bias" && !p.bias_values.empty()) return p.bias_values;
  testing::TestContext context;
  return random_tensor(context, shape, dtype, p.seed + std::hash<std::string>()(name)).to_vector();
}

/// Attention of every pair, one query of one head at a time.
class ExactProblem {
 public:
  explicit ExactProblem(const Problem& p)
      : p_(p),
        q_(values_of(p, "q", p.q, p.dtype)),
        k_(values_of(p, "k", p.k, p.dtype)),
        v_(values_of(p, "v", p.v, p.dtype)) {
    if (!p.bias.empty()) bias_ = values_of(p, "bias", p.bias, DType::kFloat32);
    testing::TestContext context;
    const Shape o{p.q[0], p.q[1], p.q[2], p.v[3]};
    grad_o_ = random_tensor(context, o, p.dtype, p.seed + 77).to_vector();
    if (p.options.alibi) slopes_ = ops::alibi_slopes(static_cast<int>(p.q[1]));
    const auto zeros_of = [](std::size_t size) { return std::vector<double>(size, 0.0); };
    results_.values = {{"o", zeros_of(grad_o_.size())},
                       {"lse", zeros_of(static_cast<std::size_t>(o[0] * o[1] * o[2]))},
                       {"grad.q", zeros_of(q_.size())},
                       {"grad.k", zeros_of(k_.size())},
                       {"grad.v", zeros_of(v_.size())}};
    if (!p.bias.empty()) results_.values["grad.bias"] = zeros_of(bias_.size());
  }

  Results results() {
    for (std::int64_t b = 0; b < p_.q[0]; ++b)
      for (std::int64_t h = 0; h < p_.q[1]; ++h)
        for (std::int64_t i = 0; i < p_.q[2]; ++i) attend(b, h, i);
    return std::move(results_);
  }

 private:
  static std::size_t at(const Shape& shape, std::int64_t b, std::int64_t h, std::int64_t s) {
    return static_cast<std::size_t>(((b * shape[1] + h) * shape[2] + s) * shape[3]);
  }
  std::int64_t key_head(std::int64_t h) const { return h / (p_.q[1] / p_.k[1]); }
  std::size_t bias_at(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    const auto place = [&](std::int64_t index, int dim) { return p_.bias[dim] == 1 ? 0 : index; };
    return at(p_.bias, place(b, 0), place(h, 1), place(i, 2)) +
           static_cast<std::size_t>(place(j, 3));
  }

  double scale() const { return 1.0 / std::sqrt(static_cast<double>(p_.q[3])); }

  double score(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    const std::span<const std::int64_t> ids =
        p_.documents.empty() ? std::span<const std::int64_t>()
                             : std::span(p_.documents)
                                   .subspan(static_cast<std::size_t>(b * p_.q[2]),
                                            static_cast<std::size_t>(p_.q[2]));
    if (!planner::test::sees(mask_of(p_), ids, i, j)) return kHidden;
    double sum = 0.0;
    for (std::int64_t d = 0; d < p_.q[3]; ++d)
      sum += q_[at(p_.q, b, h, i) + static_cast<std::size_t>(d)] *
             k_[at(p_.k, b, key_head(h), j) + static_cast<std::size_t>(d)];
    sum *= scale();
    if (!bias_.empty()) sum += bias_[bias_at(b, h, i, j)];
    if (!slopes_.empty())
      sum -= slopes_[static_cast<std::size_t>(h)] *
             std::abs(static_cast<double>(i + mask_of(p_).shift - j));
    return sum;
  }

  /// What dropout multiplies a probability by.
  double keep(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    const float p = p_.options.dropout_p;
    if (p == 0.0f) return 1.0;
    const auto index = static_cast<std::uint64_t>(((b * p_.q[1] + h) * p_.q[2] + i) * p_.k[2] + j);
    return philox_uniform(p_.options.dropout_random.at(index)) >= p ? 1.0 / (1.0 - p) : 0.0;
  }

  void attend(std::int64_t b, std::int64_t h, std::int64_t i) {
    std::vector<double> shares(static_cast<std::size_t>(p_.k[2]));
    double top = kHidden, sum = 0.0;
    for (std::int64_t j = 0; j < p_.k[2]; ++j)
      top = std::max(top, shares[static_cast<std::size_t>(j)] = score(b, h, i, j));
    double& lse = results_.values["lse"][at({p_.q[0], p_.q[1], p_.q[2], 1}, b, h, i)];
    lse = kHidden;
    if (top == kHidden) return;
    for (double& share : shares) sum += share = std::exp(share - top);
    for (double& share : shares) share /= sum;
    lse = top + std::log(sum);
    add_results(b, h, i, shares);
  }

  void add_results(std::int64_t b, std::int64_t h, std::int64_t i,
                   const std::vector<double>& shares) {
    const Shape o_shape{p_.q[0], p_.q[1], p_.q[2], p_.v[3]};
    const std::size_t row = at(o_shape, b, h, i);
    std::vector<double> grads(shares.size());
    double delta = 0.0;
    for (std::size_t j = 0; j < shares.size(); ++j) {
      const auto key = static_cast<std::int64_t>(j);
      const double kept = keep(b, h, i, key);
      const std::size_t value = at(p_.v, b, key_head(h), key);
      for (std::size_t d = 0; d < static_cast<std::size_t>(p_.v[3]); ++d) {
        results_.values["o"][row + d] += shares[j] * kept * v_[value + d];
        results_.values["grad.v"][value + d] += shares[j] * kept * grad_o_[row + d];
        grads[j] += kept * grad_o_[row + d] * v_[value + d];
      }
      delta += shares[j] * grads[j];
    }
    for (std::size_t j = 0; j < shares.size(); ++j)
      add_score_gradient(b, h, i, static_cast<std::int64_t>(j), shares[j] * (grads[j] - delta));
  }

  void add_score_gradient(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j,
                          double gradient) {
    const std::size_t query = at(p_.q, b, h, i), key = at(p_.k, b, key_head(h), j);
    for (std::size_t d = 0; d < static_cast<std::size_t>(p_.q[3]); ++d) {
      results_.values["grad.q"][query + d] += scale() * gradient * k_[key + d];
      results_.values["grad.k"][key + d] += scale() * gradient * q_[query + d];
    }
    if (!bias_.empty()) results_.values["grad.bias"][bias_at(b, h, i, j)] += gradient;
  }

  const Problem& p_;
  std::vector<double> q_, k_, v_, bias_, grad_o_;
  std::vector<float> slopes_;
  Results results_;
};

Problem causal_problem(std::int64_t length) {
  Problem p;
  p.q = {1, 2, length, 8};
  p.k = p.v = p.q;
  p.options.enable_gqa = true;
  p.options.is_causal = true;
  p.seed = 5;
  return p;
}

/// A bias by key that hides keys of two stretches, and, causal, all keys of the first queries.
Problem padded_problem() {
  Problem p = causal_problem(150);
  p.q[0] = p.k[0] = p.v[0] = 2;
  p.bias = {2, 1, 1, 150};
  for (std::int64_t row = 0; row < 2; ++row)
    for (std::int64_t j = 0; j < 150; ++j) {
      const bool hidden = row == 0 ? j < 40 || (j >= 90 && j < 99) : j >= 77;
      p.bias_values.push_back(hidden ? kHidden : 0.01 * static_cast<double>(j % 7));
    }
  return p;
}

Problem packed_problem() {
  Problem p = causal_problem(203);
  p.q[0] = p.k[0] = p.v[0] = 2;
  const std::int64_t ends[2][6] = {{1, 3, 90, 120, 121, 203}, {70, 75, 78, 140, 202, 203}};
  for (const auto& row : ends)
    for (std::int64_t i = 0, d = 0; i < 203; ++i) {
      if (i == row[d]) ++d;
      p.documents.push_back(d);
    }
  return p;
}

std::vector<std::pair<const char*, Problem>> problems() {
  std::vector<std::pair<const char*, Problem>> all;
  all.emplace_back("hidden keys and dead rows", padded_problem());
  all.emplace_back("documents", packed_problem());
  Problem alibi = causal_problem(131);
  alibi.q[1] = 6;  // no power of two
  alibi.options.alibi = true;
  all.emplace_back("ALiBi and grouped heads", alibi);
  Problem dropout = causal_problem(140);
  dropout.options.dropout_p = 0.3f;
  dropout.options.dropout_random = {11, 3};
  all.emplace_back("dropout", dropout);
  Problem wide = causal_problem(133);
  wide.options.is_causal = false;
  wide.v[3] = 5;
  wide.bias = {1, 2, 133, 133};
  all.emplace_back("wide bias, narrow values", wide);
  Problem crossed = causal_problem(130);
  crossed.k[2] = crossed.v[2] = 187;
  crossed.options.is_causal = false;
  crossed.options.window_left = 45;
  crossed.options.window_right = 30;
  all.emplace_back("window of other keys", crossed);
  return all;
}

bool fits(const Problem& p, int ranks) {
  if (p.plan.load_balancer == LoadBalancer::kPerDocument && p.documents.empty()) return false;
  return p.plan.rotate != Rotate::kUlysses || p.plan.ulysses_degree == 0 ||
         ranks % p.plan.ulysses_degree == 0;
}

class PartialMerge : public ::testing::TestWithParam<int> {};

TEST_P(PartialMerge, EqualsFloat64) {
  const int ranks = GetParam();
  const auto named = problems();
  std::vector<Results> exact;
  for (const auto& [name, p] : named) exact.push_back(ExactProblem(p).results());
  on_engine_mesh({ranks}, [&](EngineRank& rank) {
    for (std::size_t i = 0; i < named.size(); ++i)
      for (const LoadBalancer balancer : {LoadBalancer::kNone, LoadBalancer::kHeadTail,
                                          LoadBalancer::kMaskArea, LoadBalancer::kPerDocument})
        for (const Rotate rotate :
             {Rotate::kAllGather, Rotate::kAllToAll, Rotate::kPull, Rotate::kUlysses}) {
          Problem p = named[i].second;
          p.plan = {balancer, rotate, rotate == Rotate::kUlysses && ranks % 2 == 0 ? 2 : 0};
          if (!fits(p, ranks)) continue;
          SCOPED_TRACE(fmt::format("{}, {} {}", named[i].first, planner::to_string(balancer),
                                   planner::to_string(rotate)));
          parallel::enable_context_parallel(rank.engine, p.plan);
          ASSERT_NO_FATAL_FAILURE(expect_part(run_attention(rank, p, ranks), exact[i], rank, 2e-5));
        }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, PartialMerge, ::testing::Values(2, 3, 4, 5, 8));

}  // namespace
}  // namespace meshloom::test
