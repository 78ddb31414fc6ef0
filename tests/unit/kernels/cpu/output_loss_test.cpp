// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/linear_cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/kernels/cpu/compute_fixture.h"

namespace meshloom::kernels::cpu {
namespace {

using testing::ForcedTarget;
using testing::HeapWorkspace;
using testing::HostTensor;

struct Sizes {
  std::int64_t rows = 1, channels = 1, vocabulary = 2;
};

struct Problem {
  Sizes n;
  HostTensor hidden, weight, bias, targets;
  CrossEntropyOptions options;
};

struct Answers {
  std::vector<double> losses, dhidden, dweight, dbias;
};

Problem random_problem(std::mt19937& random, DType dtype, const Sizes& n) {
  Problem p{n,
            HostTensor(dtype, {n.rows, n.channels}),
            HostTensor(dtype, {n.vocabulary, n.channels}),
            HostTensor(dtype, {n.vocabulary}),
            HostTensor(DType::kInt64, {n.rows}),
            {}};
  for (const HostTensor* t : {&p.hidden, &p.weight, &p.bias}) t->fill_random(random, 0.5);
  for (std::int64_t r = 0; r < n.rows; ++r)
    p.targets.set(r, random() % 5 == 0 ? -100.0
                                       : static_cast<double>(
                                             random() % static_cast<std::uint32_t>(n.vocabulary)));
  p.options.grad_scale = 0.37f;
  return p;
}

Answers brute_force(const Problem& p) {
  const auto [rows, channels, vocabulary] = p.n;
  Answers a;
  a.losses.resize(rows);
  a.dhidden.resize(rows * channels);
  a.dweight.resize(vocabulary * channels);
  a.dbias.resize(vocabulary);
  std::vector<double> logits(vocabulary);
  const double smoothing = p.options.label_smoothing;
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto target = static_cast<std::int64_t>(p.targets.at(r));
    if (target == p.options.ignore_index) continue;
    double top = -1e300, sum = 0.0, mean = 0.0;
    for (std::int64_t v = 0; v < vocabulary; ++v) {
      logits[v] = p.bias.at(v);
      for (std::int64_t c = 0; c < channels; ++c)
        logits[v] += p.hidden.at(r * channels + c) * p.weight.at(v * channels + c);
      top = std::max(top, logits[v]);
      mean += logits[v] / static_cast<double>(vocabulary);
    }
    for (const double x : logits) sum += std::exp(x - top);
    const double lse = top + std::log(sum);
    a.losses[r] = lse - (1.0 - smoothing) * logits[target] - smoothing * mean;
    for (std::int64_t v = 0; v < vocabulary; ++v) {
      const double d = (std::exp(logits[v] - lse) - (v == target ? 1.0 - smoothing : 0.0) -
                        smoothing / static_cast<double>(vocabulary)) *
                       p.options.grad_scale;
      a.dbias[v] += d;
      for (std::int64_t c = 0; c < channels; ++c) {
        a.dhidden[r * channels + c] += d * p.weight.at(v * channels + c);
        a.dweight[v * channels + c] += d * p.hidden.at(r * channels + c);
      }
    }
  }
  return a;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& want, double tolerance,
                 const char* what) {
  for (std::size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(got[i], want[i], tolerance * (1.0 + std::abs(want[i]))) << what << " at " << i;
}

void check(const Problem& p, int threads, bool accumulate) {
  const Answers want = brute_force(p);
  const DType dtype = p.hidden.view().dtype;
  const DType gradient = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
  const HostTensor losses(DType::kFloat32, {p.n.rows}), dhidden(dtype, p.hidden.shape());
  const HostTensor dweight(gradient, p.weight.shape()), dbias(gradient, p.bias.shape());
  const double before = accumulate ? 0.25 : 0.0;
  for (const HostTensor* t : {&dweight, &dbias})
    for (std::int64_t i = 0; i < t->numel(); ++i) t->set(i, 0.25);
  HeapWorkspace workspace;
  linear_cross_entropy({{threads}, {}, &workspace}, losses.view(), dhidden.view(), dweight.view(),
                       dbias.view(), p.hidden.view(), p.weight.view(), p.bias.view(),
                       p.targets.view(), p.options, accumulate);
  const double tolerance = dtype == DType::kFloat32 ? 1e-5 : dtype == DType::kFloat64 ? 1e-6 : 5e-3;
  expect_near(losses.values(), want.losses, std::min(tolerance, 1e-5) * 2, "losses");
  expect_near(dhidden.values(), want.dhidden, tolerance, "dhidden");
  std::vector<double> dw = want.dweight, db = want.dbias;
  for (double& x : dw) x += before;
  for (double& x : db) x += before;
  expect_near(dweight.values(), dw, tolerance, "dweight");
  expect_near(dbias.values(), db, tolerance, "dbias");
}

TEST(LinearCrossEntropy, MatchesBruteForce) {
  std::mt19937 random(5);
  for (int i = 0; i < 24; ++i) {
    SCOPED_TRACE(i);
    const DType dtypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat64};
    Problem p = random_problem(
        random, dtypes[i % 3],
        {1 + static_cast<std::int64_t>(random() % 60), 1 + static_cast<std::int64_t>(random() % 50),
         2 + static_cast<std::int64_t>(random() % 300)});
    if (i % 4 == 0) p.options.label_smoothing = 0.1f;
    const std::vector<std::string> targets = available_targets();
    const ForcedTarget forced(targets[static_cast<std::size_t>(i) % targets.size()]);
    check(p, 1 + i % 3, i % 2 == 0);
    if (HasFatalFailure()) return;
  }
}

// More logits than one chunk holds.
TEST(LinearCrossEntropy, ChunksAddUpWithinTheMemoryLimit) {
  std::mt19937 random(6);
  const Problem p = random_problem(random, DType::kFloat32, {300, 2, 50000});
  check(p, 2, true);
  HeapWorkspace workspace;
  const HostTensor losses(DType::kFloat32, {300}), dhidden(DType::kFloat32, p.hidden.shape());
  linear_cross_entropy({{2}, {}, &workspace}, losses.view(), dhidden.view(), {}, {},
                       p.hidden.view(), p.weight.view(), p.bias.view(), p.targets.view(), p.options,
                       true);
  EXPECT_LT(workspace.most(), std::size_t{56} << 20);
}

TEST(LinearCrossEntropy, ForwardAloneGivesTheSameLosses) {
  std::mt19937 random(7);
  const Problem p = random_problem(random, DType::kFloat32, {33, 20, 77});
  const HostTensor losses(DType::kFloat32, {33});
  HeapWorkspace workspace;
  linear_cross_entropy({{2}, {}, &workspace}, losses.view(), {}, {}, {}, p.hidden.view(),
                       p.weight.view(), p.bias.view(), p.targets.view(), p.options, true);
  expect_near(losses.values(), brute_force(p).losses, 1e-5, "losses");
}

TEST(LinearCrossEntropy, NoRowsClearOrKeepTheGradients) {
  const HostTensor hidden(DType::kFloat32, {0, 4}), weight(DType::kFloat32, {6, 4}),
      dweight(DType::kFloat32, {6, 4}), losses(DType::kFloat32, {0}), targets(DType::kInt64, {0});
  for (std::int64_t i = 0; i < 24; ++i) dweight.set(i, 2.0);
  const KernelContext context{{1}, {}, nullptr};
  linear_cross_entropy(context, losses.view(), {}, dweight.view(), {}, hidden.view(), weight.view(),
                       {}, targets.view(), {}, true);
  EXPECT_EQ(dweight.at(5), 2.0);
  linear_cross_entropy(context, losses.view(), {}, dweight.view(), {}, hidden.view(), weight.view(),
                       {}, targets.view(), {}, false);
  EXPECT_EQ(dweight.at(5), 0.0);
}

}  // namespace
}  // namespace meshloom::kernels::cpu
